// SPDX-License-Identifier: Apache-2.0
// Compares two texts line by line: Myers' algorithm, whose time grows with the number of differences.

const MOST_EDITS = 1000,
  AROUND = 3;

// Returns pairs of equal lines' indices, in order, between the common begin and end; null if the texts
// differ too much.
function equal(a, b) {
  const n = a.length,
    m = b.length,
    most = Math.min(n + m, MOST_EDITS),
    ends = new Int32Array(2 * most + 3),
    traces = [];
  const at = (k) => k + most + 1;
  for (let d = 0; d <= most; d++) {
    traces.push(ends.slice());
    for (let k = -d; k <= d; k += 2) {
      let x =
        k === -d || (k !== d && ends[at(k - 1)] < ends[at(k + 1)]) ? ends[at(k + 1)] : ends[at(k - 1)] + 1;
      while (x < n && x - k < m && a[x] === b[x - k]) x++;
      ends[at(k)] = x;
      if (x >= n && x - k >= m) return walk(traces, n, m, d, at);
    }
  }
  return null;
}

function walk(traces, n, m, d, at) {
  const pairs = [];
  for (let x = n, y = m; d >= 0; d--) {
    const ends = traces[d],
      k = x - y;
    const from = k === -d || (k !== d && ends[at(k - 1)] < ends[at(k + 1)]) ? k + 1 : k - 1;
    const px = d ? ends[at(from)] : 0,
      py = d ? px - from : 0;
    while (x > px && y > py) pairs.push([--x, --y]);
    x = px;
    y = py;
  }
  return pairs.reverse();
}

const split = (text) => (text === "" ? [] : text.replace(/\n$/, "").split("\n"));

// Returns rows {left, right, same} with lines {n, text} or null, and {skipped} for equal lines left out.
export function sides(before, after) {
  const a = split(before),
    b = split(after);
  let begin = 0,
    end = 0;
  while (begin < a.length && begin < b.length && a[begin] === b[begin]) begin++;
  while (end < a.length - begin && end < b.length - begin && a[a.length - 1 - end] === b[b.length - 1 - end])
    end++;
  const pairs = equal(a.slice(begin, a.length - end), b.slice(begin, b.length - end)) ?? [];
  const all = [
    ...Array.from({ length: begin }, (_, i) => [i, i]),
    ...pairs.map(([i, j]) => [i + begin, j + begin]),
    ...Array.from({ length: end }, (_, i) => [a.length - end + i, b.length - end + i]),
    [a.length, b.length],
  ];
  const rows = [],
    line = (list, i) => ({ n: i + 1, text: list[i] });
  let i = 0,
    j = 0;
  for (const [x, y] of all) {
    for (; i < x || j < y; i++, j++)
      rows.push({ left: i < x ? line(a, i) : null, right: j < y ? line(b, j) : null });
    if (x < a.length && y < b.length) rows.push({ left: line(a, x), right: line(b, y), same: true });
    i = x + 1;
    j = y + 1;
  }
  return folded(rows);
}

// Leaves out equal lines that are far from a difference.
function folded(rows) {
  const keep = new Uint8Array(rows.length);
  rows.forEach((row, i) => row.same || keep.fill(1, Math.max(0, i - AROUND), i + AROUND + 1));
  const out = [];
  rows.forEach((row, i) => {
    if (keep[i]) out.push(row);
    else if (out.at(-1)?.skipped) out.at(-1).skipped++;
    else out.push({ skipped: 1 });
  });
  return out;
}
