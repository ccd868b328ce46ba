// Colours lines of YAML.
const unseen = /([\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff])/; // letters that change what others look like
export const paintMax = 50000; // letters of a document that are coloured

// paint adds a line to an element, in pieces.
export function paint(to, line) {
  const [, before, key, colon, rest] = /^(\s*(?:- )*)(?:([^\s#"'{}[\],:][^:#"'{}]*?)(:)(?=\s|$))?(.*)$/.exec(line);
  if (before) to.append(before);
  for (const [kind, piece] of [["k", key], ["", colon], ...[...(rest ?? "").matchAll(/(\s#.*$|^#.*$)|("(?:[^"\\]|\\.)*"?|'[^']*'?)|(\{\{.*?\}\})|((?:(?!\s#|["']|\{\{).)+|.)/g)].map(m => [m[1] ? "c" : m[2] ? "s" : m[3] ? "v" : "", m[0]])]) {
    if (!piece) continue;
    for (const [i, part] of piece.split(unseen).entries()) {
      const span = document.createElement("span");
      span.className = i % 2 ? "u" : kind;
      span.textContent = i % 2 ? "\u200b" : part;
      to.append(span);
    }
  }
}

// documents colours documents that are shown.
export function documents(list) {
  for (const text of list) {
    if (text.textContent.length > paintMax) continue;
    for (const line of text.querySelectorAll(".same")) {
      const said = line.textContent;
      line.replaceChildren();
      paint(line, said);
    }
  }
}
