//! As much of Markdown as the rules need: links, code spans, headings, tables; not what stands in code blocks.

/// A piece of a document with its line, which counts from 1.
pub struct Piece<'a> {
    /// Where it is.
    pub line: usize,
    /// What it says.
    pub text: &'a str,
}

/// Lines that are no code block.
pub fn prose(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut fence: Option<&str> = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return Some(Piece { line: index + 1, text: line }),
            _ => {}
        }
        None
    })
}

/// Code spans: what stands between single backticks.
pub fn spans(text: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    for line in prose(text) {
        let pieces = line.text.split('`').enumerate();
        let inside =
            pieces.filter(|(index, _)| index % 2 == 1).map(|(_, text)| Piece { line: line.line, text });
        found.extend(inside.filter(|piece| !piece.text.is_empty()));
    }
    found
}

/// Targets of links and pictures.
pub fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for line in prose(text) {
        let outside: Vec<&str> = line.text.split('`').step_by(2).collect();
        let outside = outside.join("``");
        for (at, _) in outside.match_indices("](") {
            let target = outside[at + 2..].split(')').next().unwrap_or_default();
            let target = target.split_whitespace().next().unwrap_or_default();
            found.push((line.line, target.trim_matches(['<', '>']).to_owned()));
        }
        // [name]: target
        if let Some((name, target)) = outside.trim_start().split_once("]: ")
            && name.starts_with('[')
        {
            found.push((line.line, target.split_whitespace().next().unwrap_or_default().to_owned()));
        }
    }
    found
}

/// Names by which headings can be linked to.
pub fn anchors(text: &str) -> Vec<String> {
    let heading = |line: Piece<'_>| {
        let level = line.text.bytes().take_while(|byte| *byte == b'#').count();
        let title = line.text.get(level..)?.strip_prefix(' ')?;
        (1..=6).contains(&level).then(|| anchor(title))
    };
    prose(text).filter_map(heading).collect()
}

fn anchor(title: &str) -> String {
    let keep = |c: char| match c {
        ' ' | '-' => Some('-'),
        '_' => Some('_'),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    };
    title.trim().to_lowercase().chars().filter_map(keep).collect()
}

/// The cells below headings that are asked for, one piece per cell.
pub fn cells<'a>(text: &'a str, wanted: impl Fn(&str) -> bool) -> Vec<Piece<'a>> {
    let mut found = Vec::new();
    let mut columns: Vec<usize> = Vec::new();
    let mut previous: Option<Piece<'a>> = None;
    for line in prose(text) {
        let row = line.text.trim();
        if !row.starts_with('|') {
            (columns, previous) = (Vec::new(), None);
            continue;
        }
        if row.chars().all(|c| "|-: ".contains(c)) {
            let head = previous.as_ref().map(|head| split(head.text)).unwrap_or_default();
            columns = (0..head.len()).filter(|index| wanted(head[*index].trim())).collect();
        } else {
            let row = split(line.text);
            let asked = columns.iter().filter_map(|index| row.get(*index));
            found.extend(asked.map(|text| Piece { line: line.line, text }));
        }
        previous = Some(line);
    }
    found
}

/// Cells of a row; a bar behind a backslash or in a code span separates nothing.
fn split(row: &str) -> Vec<&str> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    let (mut cells, mut start, mut in_code) = (Vec::new(), 0, false);
    for (at, byte) in row.bytes().enumerate() {
        match byte {
            b'`' => in_code = !in_code,
            b'|' if !in_code && (at == 0 || row.as_bytes()[at - 1] != b'\\') => {
                cells.push(&row[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    cells.push(&row[start..]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_of_code() {
        let text = "[a](b.md#c) `[no](x)` ![p](<d e.png> \"t\")\n```\n[no](y)\n```\n[r]: z.md\n[s][r]\n";
        let found: Vec<_> =
            links(text).into_iter().map(|(line, target)| format!("{line} {target}")).collect();
        assert_eq!(found, ["1 b.md#c", "1 d", "5 z.md"]);
    }

    #[test]
    fn code_spans() {
        let text = "use `a/b.rs` and `c`\n~~~\n`no`\n~~~\n";
        let found: Vec<_> = spans(text).iter().map(|piece| piece.text).collect();
        assert_eq!(found, ["a/b.rs", "c"]);
    }

    #[test]
    fn headings_become_anchors() {
        assert_eq!(
            anchors("# The `two` commands\n## 3.1 States, again\n#no\n"),
            ["the-two-commands", "31-states-again"]
        );
    }

    #[test]
    fn cells_of_a_column() {
        let text = "| a | Test |\n|---|:---|\n| `x|y` | `t_one` |\n| b \\| c | d |\n\n| a | b |\n|---|---|\n| c | d |\n";
        let found: Vec<_> =
            cells(text, |head| head == "Test").iter().map(|c| format!("{}{}", c.line, c.text)).collect();
        assert_eq!(found, ["3 `t_one` ", "4 d "]);
    }
}
