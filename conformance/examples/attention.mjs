/* Attention in JavaScript, judged through files: reads cases, writes results.

       attncheck export cases --dtype F32 --dtype F64
       node attention.mjs cases
       attncheck judge cases

   What to replace with your own is `attention`; the rest reads and writes the files as
   docs/format.md describes them. Forward and log-sum-exp, in float64, as JavaScript
   computes; results are rounded once to the type of the case. It goes on where it was
   stopped: what has a result of this version of its case is not run again. */

import { appendFileSync, existsSync, mkdirSync } from "node:fs";
import { readFileSync, writeFileSync } from "node:fs";
import { endianness } from "node:os";
import { join } from "node:path";

const SUBJECT = { name: "attention.mjs", version: "1", profile: "strict" };
const TYPES = { F32: Float32Array, F64: Float64Array, BOOL: Uint8Array };

// ------------------------------------------------------------------ the computation

/* q: b n i d, k: b h j d, v: b h j e; mask, bias, keep: b n i j, each axis full or 1.
   An array is { shape, data } in C order; what a case has not is undefined. */
function attention({ q, k, v, mask, bias, keep, scale, softcap, rate }) {
  const [b, n, i] = q.shape;
  const [, , , e] = v.shape;
  const output = { shape: [b, n, i, e], data: new Float64Array(b * n * i * e) };
  const lse = { shape: [b, n, i], data: new Float64Array(b * n * i) };
  const group = n / k.shape[1];
  let row = 0;
  for (let x = 0; x < b; x++)
    for (let head = 0; head < n; head++)
      for (let query = 0; query < i; query++, row++) {
        const shared = Math.floor(head / group); // consecutive query heads share one
        const at = (array, j) => element(array, x, head, query, j);
        const keys = [];
        for (let j = 0; j < k.shape[2]; j++) if (!mask || at(mask, j)) keys.push(j);
        const logits = keys.map((j) => {
          let sum = 0;
          for (let w = 0; w < q.shape[3]; w++)
            sum += element(q, x, head, query, w) * element(k, x, shared, j, w);
          sum *= scale;
          if (softcap !== null) sum = softcap * Math.tanh(sum / softcap);
          return bias ? sum + at(bias, j) : sum;
        });
        const top = logits.reduce((a, c) => Math.max(a, c), -Infinity); // NaN stays
        lse.data[row] = top;
        if (top === -Infinity) continue; // no key, or none that counts: an empty sum
        const weights = logits.map((logit) => Math.exp(logit - top));
        const total = weights.reduce((a, c) => a + c, 0);
        lse.data[row] = top + Math.log(total);
        weights.forEach((weight, place) => {
          const j = keys[place];
          let share = weight / total;
          if (keep) share *= at(keep, j) / (1 - rate);
          for (let w = 0; w < e; w++)
            output.data[row * e + w] += share * element(v, x, shared, j, w);
        });
      }
  return { output, lse };
}

function element({ shape, data }, ...index) {
  let place = 0; // an axis of size 1 stands for all
  shape.forEach((size, axis) => (place = place * size + (size === 1 ? 0 : index[axis])));
  return data[place];
}

// ------------------------------------------------------------------ safetensors

/* Eight bytes say how long the header is, the lowest first; the header is JSON; the arrays
   follow, where data_offsets says, counted from the end of the header. */
function readArrays(path) {
  const bytes = readFileSync(path);
  const start = 8 + Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString("utf8", 8, start));
  delete header.__metadata__;
  const array = ({ dtype, shape, data_offsets: [begin, end] }) => {
    const copy = Uint8Array.prototype.slice.call(bytes, start + begin, start + end);
    return { shape, data: new TYPES[dtype](copy.buffer) };
  };
  return Object.fromEntries(Object.entries(header).map(([name, x]) => [name, array(x)]));
}

function writeArrays(path, dtype, arrays) {
  const header = {};
  const parts = [];
  let end = 0;
  for (const [name, { shape, data }] of Object.entries(arrays)) {
    const bytes = Buffer.from(TYPES[dtype].from(data).buffer); // rounds once
    header[name] = { dtype, shape, data_offsets: [end, (end += bytes.length)] };
    parts.push(bytes);
  }
  const text = Buffer.from(JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([size, text, ...parts]));
}

// ------------------------------------------------------------------ cases

/* Why a case is not for this program, or null. */
function lacking({ op, dtype }) {
  if (op !== "attention") return "has no multi-head or other attention";
  if (!["F32", "F64"].includes(dtype)) return "computes in float32 and float64 only";
  return null;
}

function run(folder, record, file) {
  const { q, k, v, mask, bias, dropout_keep: keep } = readArrays(join(folder, record.file));
  const { scale, softcap, dropout_rate: rate, dtype } = record;
  const results = attention({ q, k, v, mask, bias, keep, scale, softcap, rate });
  writeArrays(join(folder, file), dtype, results);
}

function records(path) {
  const lines = readFileSync(path, "utf8").split("\n");
  return lines.filter((line) => line !== "").map((line) => JSON.parse(line));
}

/* What an earlier run of this program did; a last line that was cut short is removed. */
function finished(results) {
  if (!existsSync(results)) return new Set();
  const text = readFileSync(results);
  writeFileSync(results, text.subarray(0, text.lastIndexOf("\n") + 1));
  const ours = ({ subject: { name, version } = {} }) =>
    name === SUBJECT.name && version === SUBJECT.version;
  return new Set(records(results).filter(ours).map(({ id, sha256 }) => `${sha256} ${id}`));
}

function main(folder) {
  if (endianness() !== "LE") throw new Error("the files are little-endian");
  const results = join(folder, "results.jsonl");
  const done = finished(results);
  mkdirSync(join(folder, "results"), { recursive: true });
  for (const record of records(join(folder, "cases.jsonl"))) {
    const { schema, id, sha256 } = record;
    if (schema !== "attncheck-case/1") throw new Error(`another format: ${schema}`);
    if (done.has(`${sha256} ${id}`)) continue;
    const line = { schema: "attncheck-result/1", id, sha256, subject: SUBJECT };
    const why = lacking(record);
    if (why) Object.assign(line, { status: "not applicable", message: why });
    else {
      const file = `results/${encodeURIComponent(id)}.safetensors`;
      run(folder, record, file); // its arrays first: no line speaks of what is not there
      Object.assign(line, { status: "done", file });
    }
    appendFileSync(results, JSON.stringify(line) + "\n");
  }
}

if (process.argv.length !== 3) {
  console.error("usage: node attention.mjs FOLDER");
  process.exit(2);
}
main(process.argv[2]);
