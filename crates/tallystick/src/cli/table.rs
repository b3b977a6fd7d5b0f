//! Plain tables for people: columns padded to their widest cell, nothing else.

use std::fmt::Write as _;

/// Rows under headings, as text that ends with a line break.
#[must_use]
pub fn render(headings: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut out = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            let _ = write!(text, "{cell:<width$}  ");
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&mut headings.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["default".into(), "on".into()], vec!["ab".into(), "off".into()]];
        assert_eq!(
            render(&["TENANT", "TWO PEOPLE"], &rows),
            "TENANT   TWO PEOPLE\ndefault  on\nab       off\n"
        );
    }
}
