// Tables as text for other documents.

const oneLine = (text) => String(text).replace(/\s+/g, " ").trim();

/** Text that a cell of a Markdown table shows as it is. */
const markdownText = (text) =>
  oneLine(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/[\\`*_[\]|~$]/g, "\\$&");

/** Text that LaTeX sets as it is. */
const LATEX = {
  "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", $: "\\$", "&": "\\&", "#": "\\#", _: "\\_",
  "%": "\\%", "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "<": "\\textless{}",
  ">": "\\textgreater{}", "|": "\\textbar{}", "±": "$\\pm$", "−": "$-$",
};
const latexText = (text) => oneLine(text).replace(/[\\{}$&#_%^~<>|±−]/g, (letter) => LATEX[letter]);

/** A table of Markdown: titles [{title, numeric}], rows of {text, bold}. */
function asMarkdown(titles, rows) {
  const cell = ({ text, bold }) => (bold ? `**${markdownText(text)}**` : markdownText(text));
  const line = (cells) => `| ${cells.join(" | ")} |`;
  return [
    line(titles.map(({ title }) => markdownText(title))),
    line(titles.map(({ numeric }) => (numeric ? "---:" : "---"))),
    ...rows.map((row) => line(row.map(cell))),
  ].join("\n") + "\n";
}

/** The same as a LaTeX tabular with the rules of booktabs. */
function asLatex(titles, rows) {
  const cell = ({ text, bold }) => (bold ? `\\textbf{${latexText(text)}}` : latexText(text));
  const line = (cells) => `${cells.join(" & ")} \\\\`;
  return [
    `\\begin{tabular}{${titles.map(({ numeric }) => (numeric ? "r" : "l")).join("")}}`,
    "\\toprule",
    line(titles.map(({ title }) => latexText(title))),
    "\\midrule",
    ...rows.map((row) => line(row.map(cell))),
    "\\bottomrule",
    "\\end{tabular}",
  ].join("\n") + "\n";
}
