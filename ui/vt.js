// SPDX-License-Identifier: Apache-2.0
// The screen of a terminal, as far as programs use xterm's sequences. It knows nothing of elements.
// Everything it is given was chosen by a guest: numbers are bounded, and unknown sequences are left out.

const BOLD = 1,
  DIM = 2,
  ITALIC = 4,
  UNDERLINE = 8,
  INVERSE = 16;
const DRAWN = {
  j: "┘",
  k: "┐",
  l: "┌",
  m: "└",
  n: "┼",
  q: "─",
  t: "├",
  u: "┤",
  v: "┴",
  w: "┬",
  x: "│",
  "`": "◆",
  a: "▒",
  f: "°",
  g: "±",
  "~": "·",
};
const MARK = /^[\p{M}\u200d\ufe0f]$/u;
const wide = (c) =>
  c >= 0x1100 &&
  (c <= 0x115f ||
    (c >= 0x2e80 && c <= 0xa4cf) ||
    (c >= 0xac00 && c <= 0xd7a3) ||
    (c >= 0xf900 && c <= 0xfaff) ||
    (c >= 0xfe30 && c <= 0xfe6f) ||
    (c >= 0xff00 && c <= 0xff60) ||
    (c >= 0xffe0 && c <= 0xffe6) ||
    (c >= 0x1f300 && c <= 0x1faff) ||
    (c >= 0x20000 && c <= 0x3fffd));
const hidden = (c) =>
  (c >= 0x7f && c < 0xa0) ||
  c === 0x61c ||
  (c >= 0x200b && c <= 0x200f) ||
  (c >= 0x2028 && c <= 0x202e) ||
  (c >= 0x2060 && c <= 0x2069) ||
  c === 0xfeff;

export class Screen {
  constructor(cols, rows) {
    this.reply = () => {}; // text for the program
    this.past = []; // lines that left the screen at its top, until they are taken
    this.size(cols, rows);
    this.reset();
  }

  size(cols, rows) {
    this.cols = Math.max(2, cols);
    this.rows = Math.max(2, rows);
  }

  reset() {
    this.attr = { fg: 0, bg: 0, flags: 0 };
    this.x = this.y = 0;
    this.top = 0;
    this.bottom = this.rows - 1;
    this.lines = Array.from({ length: this.rows }, () => this.blank());
    this.other = null; // the main screen's lines while the alternate one is shown
    this.saved = null;
    this.cursor = this.wraps = true;
    this.keys = this.brackets = this.drawing = false;
    this.state = "text";
  }

  blank() {
    return { text: Array(this.cols).fill(" "), attrs: Array(this.cols).fill(0), dirty: true };
  }

  resize(cols, rows) {
    if (cols === this.cols && rows === this.rows) return;
    this.size(cols, rows);
    this.lines = this.fit(this.lines, !this.other);
    if (this.other) this.other = this.fit(this.other, false);
    this.x = Math.min(this.x, this.cols - 1);
    this.y = Math.max(0, Math.min(this.y, this.rows - 1));
    this.top = 0;
    this.bottom = this.rows - 1;
  }

  fit(lines, main) {
    for (const line of lines) {
      line.text.length = Math.min(line.text.length, this.cols);
      line.attrs.length = line.text.length;
      while (line.text.length < this.cols) (line.text.push(" "), line.attrs.push(0));
      line.dirty = true;
    }
    const spare = Math.max(0, lines.length - this.rows),
      above = main ? Math.min(spare, Math.max(0, this.y - this.rows + 1)) : 0;
    const gone = lines.splice(0, above);
    if (main) (this.past.push(...gone), (this.y -= above));
    lines.length = Math.min(lines.length, this.rows);
    while (lines.length < this.rows) lines.push(this.blank());
    return lines;
  }

  write(text) {
    for (const c of text) this[this.state](c, c.codePointAt(0));
  }

  /* --- states of the parser --- */

  text(c, code) {
    if (code < 0x20) this.control(code);
    else if (!hidden(code)) this.put(this.drawing ? (DRAWN[c] ?? c) : c, code);
  }

  escape(c, code) {
    this.state = "text";
    if (c === "[") ((this.params = ""), (this.state = "csi"));
    else if (c === "]" || c === "P" || c === "_" || c === "^" || c === "X") this.state = "string";
    else if (c === "(") this.state = "charset";
    else if (")*+#%".includes(c)) this.state = "skip";
    else if (c === "7") this.save();
    else if (c === "8") this.restore();
    else if (c === "D") this.down();
    else if (c === "E") ((this.x = 0), this.down());
    else if (c === "M") this.up();
    else if (c === "c") this.reset();
    else if (code < 0x20) this.control(code);
  }

  charset(c) {
    this.drawing = c === "0";
    this.state = "text";
  }

  skip() {
    this.state = "text";
  }

  // Titles and the like: they end with BEL or ESC \.
  string(c, code) {
    if (code === 7 || code === 0x18) this.state = "text";
    else if (code === 0x1b) this.state = "skip";
  }

  csi(c, code) {
    if (code < 0x20) return this.control(code);
    if (code < 0x40) {
      if (this.params.length < 64) this.params += c;
      return undefined;
    }
    this.state = "text";
    const mark = /^[<=>?]/.exec(this.params)?.[0] ?? "",
      rest = mark ? this.params.slice(1) : this.params;
    if (/[^0-9;:]/.test(rest)) return undefined; // with other letters in between
    const n = rest
      .split(/[;:]/)
      .slice(0, 32)
      .map((one) => Math.min(Number(one) || 0, 9999));
    return mark ? this.mode(mark, c, n) : this.command(c, n);
  }

  /* --- what sequences do --- */

  control(code) {
    if (code === 0x1b) this.state = "escape";
    else if (code === 8) this.x = Math.max(0, Math.min(this.x, this.cols - 1) - 1);
    else if (code === 9) this.x = Math.min(this.cols - 1, (this.x & ~7) + 8);
    else if (code >= 10 && code <= 12) this.down();
    else if (code === 13) this.x = 0;
  }

  put(c, code) {
    const line = this.lines[this.y];
    if (MARK.test(c)) {
      const at = Math.max(0, Math.min(this.x, this.cols) - 1);
      if (line.text[at].length < 8) line.text[at] += c;
      line.dirty = true;
      return;
    }
    const width = wide(code) ? 2 : 1;
    if (this.x + width > this.cols) {
      if (this.wraps) ((this.x = 0), this.down());
      else this.x = this.cols - width;
    }
    const now = this.lines[this.y],
      packed = this.packed();
    now.text[this.x] = c;
    now.attrs[this.x] = packed;
    if (width === 2) ((now.text[this.x + 1] = ""), (now.attrs[this.x + 1] = packed));
    now.dirty = true;
    this.x += width;
  }

  packed() {
    return this.attr.fg | (this.attr.bg << 9) | (this.attr.flags << 18);
  }

  down() {
    if (this.y === this.bottom) this.scroll(1);
    else if (this.y < this.rows - 1) this.y++;
  }

  up() {
    if (this.y === this.top) this.scroll(-1);
    else if (this.y > 0) this.y--;
  }

  scroll(n) {
    const height = this.bottom - this.top + 1;
    for (let i = 0; i < Math.min(Math.abs(n), height); i++) {
      const [gone] = this.lines.splice(n > 0 ? this.top : this.bottom, 1);
      this.lines.splice(n > 0 ? this.bottom : this.top, 0, this.blank());
      if (n > 0 && this.top === 0 && !this.other) this.past.push(gone);
    }
    if (this.past.length > 4000) this.past.splice(0, this.past.length - 2000);
    for (let y = this.top; y <= this.bottom; y++) this.lines[y].dirty = true;
  }

  erase(y, from, to) {
    const line = this.lines[y],
      packed = this.attr.bg << 9;
    for (let x = Math.max(0, from); x < Math.min(to, this.cols); x++)
      ((line.text[x] = " "), (line.attrs[x] = packed));
    line.dirty = true;
  }

  // Moves the rest of the line; `n` is negative to delete.
  shift(n) {
    const line = this.lines[this.y],
      x = Math.min(this.x, this.cols - 1),
      by = Math.min(Math.abs(n), this.cols - x);
    for (const [list, fill] of [
      [line.text, " "],
      [line.attrs, 0],
    ]) {
      if (n > 0) (list.splice(x, 0, ...Array(by).fill(fill)), (list.length = this.cols));
      else (list.splice(x, by), list.push(...Array(by).fill(fill)));
    }
    line.dirty = true;
  }

  to(x, y) {
    this.x = Math.max(0, Math.min(x, this.cols - 1));
    this.y = Math.max(0, Math.min(y, this.rows - 1));
  }

  command(c, n) {
    const k = Math.max(1, n[0]),
      x = Math.min(this.x, this.cols - 1);
    switch (c) {
      case "A":
        return this.to(x, Math.max(this.y - k, this.y >= this.top ? this.top : 0));
      case "B":
      case "e":
        return this.to(x, Math.min(this.y + k, this.y <= this.bottom ? this.bottom : this.rows - 1));
      case "C":
      case "a":
        return this.to(x + k, this.y);
      case "D":
        return this.to(x - k, this.y);
      case "E":
        return this.to(0, this.y + k);
      case "F":
        return this.to(0, this.y - k);
      case "G":
      case "`":
        return this.to(k - 1, this.y);
      case "d":
        return this.to(x, k - 1);
      case "H":
      case "f":
        return this.to(Math.max(1, n[1] ?? 1) - 1, k - 1);
      case "J":
        if (n[0] === 0) this.erase(this.y, x, this.cols);
        if (n[0] === 1) this.erase(this.y, 0, x + 1);
        for (let y = n[0] === 0 ? this.y + 1 : 0; y < (n[0] === 1 ? this.y : this.rows); y++)
          this.erase(y, 0, this.cols);
        return undefined;
      case "K":
        return this.erase(this.y, n[0] === 0 ? x : 0, n[0] === 1 ? x + 1 : this.cols);
      case "X":
        return this.erase(this.y, x, x + k);
      case "@":
        return this.shift(k);
      case "P":
        return this.shift(-k);
      case "L":
      case "M": {
        if (this.y < this.top || this.y > this.bottom) return undefined;
        const { top, other } = this;
        this.top = this.y;
        this.other ??= []; // these lines do not go to the past
        this.scroll(c === "L" ? -k : k);
        this.other = other;
        this.top = top;
        return undefined;
      }
      case "S":
        return this.scroll(k);
      case "T":
        return this.scroll(-k);
      case "m":
        return this.style(n);
      case "r": {
        const top = k - 1,
          bottom = Math.min((n[1] || this.rows) - 1, this.rows - 1);
        if (top < bottom) ((this.top = top), (this.bottom = bottom), this.to(0, 0));
        return undefined;
      }
      case "s":
        return this.save();
      case "u":
        return this.restore();
      case "n":
        return n[0] === 6
          ? this.reply(`\x1b[${this.y + 1};${x + 1}R`)
          : n[0] === 5
            ? this.reply("\x1b[0n")
            : undefined;
      case "c":
        return this.reply("\x1b[?1;2c");
      default:
        return undefined;
    }
  }

  mode(mark, c, all) {
    if (mark !== "?" || (c !== "h" && c !== "l")) return;
    const on = c === "h";
    for (const n of all) {
      if (n === 1) this.keys = on;
      else if (n === 7) this.wraps = on;
      else if (n === 25) this.cursor = on;
      else if (n === 2004) this.brackets = on;
      else if (n === 47 || n === 1047 || n === 1049) this.alternate(on, n === 1049);
    }
  }

  alternate(on, saves) {
    if (on === Boolean(this.other)) return;
    if (on) {
      if (saves) this.save();
      this.other = this.lines;
      this.lines = Array.from({ length: this.rows }, () => this.blank());
    } else {
      this.lines = this.other;
      this.other = null;
      for (const line of this.lines) line.dirty = true;
      if (saves) this.restore();
    }
    this.top = 0;
    this.bottom = this.rows - 1;
  }

  save() {
    this.saved = { x: this.x, y: this.y, attr: { ...this.attr } };
  }

  restore() {
    if (!this.saved) return;
    this.to(this.saved.x, this.saved.y);
    this.attr = { ...this.saved.attr };
  }

  // Colours are 1 + their number of 256; 0 is the default.
  style(n) {
    const a = this.attr,
      set = { 1: BOLD, 2: DIM, 3: ITALIC, 4: UNDERLINE, 7: INVERSE },
      unset = { 22: BOLD | DIM, 23: ITALIC, 24: UNDERLINE, 27: INVERSE };
    for (let i = 0; i < n.length; i++) {
      const c = n[i];
      if (c === 0) a.fg = a.bg = a.flags = 0;
      else if (set[c]) a.flags |= set[c];
      else if (unset[c]) a.flags &= ~unset[c];
      else if (c >= 30 && c <= 37) a.fg = c - 29;
      else if (c >= 40 && c <= 47) a.bg = c - 39;
      else if (c >= 90 && c <= 97) a.fg = c - 81;
      else if (c >= 100 && c <= 107) a.bg = c - 91;
      else if (c === 39) a.fg = 0;
      else if (c === 49) a.bg = 0;
      else if (c === 38 || c === 48) {
        const key = c === 38 ? "fg" : "bg";
        if (n[i + 1] === 5) ((a[key] = 1 + Math.min(n[i + 2] ?? 0, 255)), (i += 2));
        else if (n[i + 1] === 2)
          ((a[key] = 1 + 16 + 36 * step(n[i + 2]) + 6 * step(n[i + 3]) + step(n[i + 4])), (i += 4));
      }
    }
  }
}

const step = (value) => Math.round((Math.min(value ?? 0, 255) * 5) / 255);

const BASIC = [
  "#39423d",
  "#ff8a80",
  "#7bd8a4",
  "#f0c869",
  "#8ab8ff",
  "#d9a4ff",
  "#74d6d6",
  "#dfe6e1",
  "#7b8781",
  "#ffb3ac",
  "#a5ebc4",
  "#ffe0a0",
  "#b4d2ff",
  "#ebccff",
  "#a5ecec",
  "#ffffff",
];

// Returns the CSS colour of a packed colour that is not 0.
export function colour(n) {
  n -= 1;
  if (n < 16) return BASIC[n];
  if (n > 231)
    return `rgb(${Array(3)
      .fill(8 + 10 * (n - 232))
      .join()})`;
  const part = (v) => (v ? 55 + 40 * v : 0);
  return `rgb(${part(Math.floor((n - 16) / 36))},${part(Math.floor((n - 16) / 6) % 6)},${part((n - 16) % 6)})`;
}

// Returns the runs of a line that look alike: {text, fg, bg, flags}, without the blanks at its end.
export function runs(line, cursor = -1) {
  const out = [];
  let end = line.text.length;
  while (end > cursor + 1 && end > 0 && line.text[end - 1] === " " && !line.attrs[end - 1]) end--;
  for (let x = 0; x < end; x++) {
    const packed = line.attrs[x],
      last = out.at(-1),
      here = x === cursor;
    if (last && last.packed === packed && !last.here && !here) last.text += line.text[x];
    else
      out.push({
        text: line.text[x],
        packed,
        here,
        fg: packed & 511,
        bg: (packed >> 9) & 511,
        flags: packed >> 18,
      });
  }
  return out;
}
export const FLAGS = { BOLD, DIM, ITALIC, UNDERLINE, INVERSE };
