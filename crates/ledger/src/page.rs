//! Pages of lists.

use serde::Serialize;

/// One page of a list.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Page<T> {
    /// The items, newest first.
    pub data: Vec<T>,
    /// What to ask the next page with; `None` on the last one.
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page out of up to `limit + 1` items; `cursor` names the last item shown.
    pub(crate) fn cut(mut data: Vec<T>, limit: i64, cursor: impl Fn(&T) -> String) -> Self {
        let limit = usize::try_from(limit).unwrap_or(0);
        let more = data.len() > limit;
        data.truncate(limit);
        let next_cursor = if more { data.last().map(cursor) } else { None };
        Self { data, next_cursor }
    }
}
