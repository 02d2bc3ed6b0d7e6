// The explorer: attention of one head, computed here, on ten tokens of a real model.
"use strict";

const MASKS = {
  none: () => true,
  causal: (i, j, offset) => j <= i + offset,
  window: (i, j, offset) => j <= i + offset && j >= i + offset - 2,
  padding: (i, j) => j < 8,
};

// All steps of a head {q, k, v}; what is broken is named by `fault`.
function attentionSteps({ q, k, v }, { mask, offset, scale, softcap, fault }) {
  const dot = (a, b) => a.reduce((sum, x, n) => sum + x * b[n], 0);
  const map = (matrix, f) => matrix.map((row, i) => row.map((x, j) => f(x, i, j)));
  const factor = fault === "no-scale" ? 1 : scale;
  const cap = (x) => (softcap ? softcap * Math.tanh(x / softcap) : x);
  const polarity = fault === "polarity";
  const seen = (i, j) => MASKS[mask](i, j, offset) !== polarity;
  const block = (x, i, j) => (seen(i, j) ? x : -Infinity);

  const scores = q.map((a) => k.map((b) => dot(a, b)));
  const logits = map(scores, (x) => cap(x * factor));
  const masked = fault === "after" || fault === "twice" ? logits : map(logits, block);
  let weights = masked.map(softmax);
  if (fault === "after") weights = map(weights, (p, i, j) => (seen(i, j) ? p : 0));
  if (fault === "twice") weights = map(weights, block).map(softmax);
  const output = weights.map((row) => v[0].map((_, e) => dot(row, v.map((x) => x[e]))));
  return { scores, logits, masked, weights, output };
}

// A row's weights; a row of only −∞ is empty, and has weights 0.
function softmax(row) {
  const top = Math.max(...row);
  if (top === -Infinity) return row.map(() => 0);
  const powers = row.map((x) => Math.exp(x - top));
  const total = powers.reduce((sum, x) => sum + x, 0);
  return powers.map((x) => x / total);
}

const CHANGES = {
  "no-scale": "The logits are not scaled: rows tend to a choice of one.",
  polarity: "True is taken for blocked: what should be seen is not, and the reverse.",
  after: "The mask comes after softmax: rows no longer sum to 1.",
  twice: "Softmax, mask, softmax: it looks causal, and the weights are wrong.",
};

class AttentionExplorer extends HTMLElement {
  connectedCallback() {
    this.data = JSON.parse(this.querySelector("script").textContent);
    this.form = this.querySelector("form");
    this.chosen = [5, 2];
    this.restore();
    this.form.addEventListener("input", () => this.update());
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.table = this.querySelector("table");
    this.table.addEventListener("click", (event) => this.choose(event.target));
    this.table.addEventListener("keydown", (event) => this.move(event));
    this.update();
  }

  get options() {
    const value = (name) => this.form.elements[name].value;
    return {
      head: value("head"),
      step: value("step"),
      mask: value("mask"),
      offset: Number(value("offset")),
      scale: Number(value("scale")) / Math.sqrt(32),
      softcap: Number(value("softcap")) || null,
      fault: value("fault"),
    };
  }

  restore() {
    for (const [name, value] of new URLSearchParams(location.search)) {
      const field = this.form.elements[name];
      if (field) field.value = value;
    }
  }

  remember() {
    const query = new URLSearchParams(new FormData(this.form));
    history.replaceState(null, "", `?${query}${location.hash}`);
  }

  update() {
    const options = this.options;
    this.found = attentionSteps(this.data.inputs[options.head], options);
    for (const output of this.form.querySelectorAll("output"))
      output.value = this.form.elements[output.htmlFor].value;
    this.draw(options.step);
    this.say(options);
    this.remember();
  }

  draw(step) {
    const { tokens } = this.data;
    const matrix = this.found[step];
    const finite = matrix.flat().filter(Number.isFinite).map(Math.abs);
    const most = step === "weights" ? 1 : Math.max(...finite, 1e-9);
    const columns = step === "output" ? matrix[0].map((_, e) => String(e)) : tokens;
    this.table.replaceChildren(
      this.row("th", ["", ...columns]),
      ...matrix.map((values, i) => {
        const row = this.row("th", [tokens[i]]);
        values.forEach((x, j) => row.append(this.cell(x, i, j, most, step)));
        return row;
      }),
    );
  }

  row(tag, texts) {
    const row = document.createElement("tr");
    for (const text of texts) {
      const cell = document.createElement(tag);
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }

  cell(x, i, j, most, step) {
    const cell = document.createElement("td");
    const share = Number.isFinite(x) ? Math.min(Math.abs(x) / most, 1) : 0;
    const [colour, strength] = x < 0 ? ["--line-2", 50] : ["--high", 100];
    cell.dataset.at = `${i},${j}`;
    cell.tabIndex = i === this.chosen[0] && j === this.chosen[1] ? 0 : -1;
    if (cell.tabIndex === 0) cell.setAttribute("aria-current", "true");
    cell.className = x === -Infinity ? "ink is-blocked" : "ink";
    cell.style.setProperty("--share", x < 0 ? 0 : share);
    if (x !== -Infinity)
      cell.style.background = `color-mix(in oklab, var(${colour}) ${strength * share}%, var(--low))`;
    cell.textContent = x === -Infinity ? "−∞" : x.toFixed(step === "weights" ? 2 : 1);
    return cell;
  }

  choose(target) {
    if (!target.dataset.at) return;
    this.chosen = target.dataset.at.split(",").map(Number);
    this.update();
    this.table.querySelector("td[tabindex='0']")?.focus();
  }

  move(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    const at = this.chosen.map((x, n) => x + step[n]);
    const target = this.table.querySelector(`td[data-at="${at}"]`);
    if (target) this.choose(target);
  }

  say(options) {
    const [i, j] = this.chosen;
    const { tokens } = this.data;
    const { q, k } = this.data.inputs[options.head];
    const parts = this.querySelector("[data-say]");
    const sums = this.found.weights.map((row) => row.reduce((sum, x) => sum + x, 0));
    const right = attentionSteps(this.data.inputs[options.head], { ...options, fault: "" });
    const off = Math.max(
      ...right.weights.flatMap((row, a) => row.map((x, b) => Math.abs(x - this.found.weights[a][b]))),
    );
    const lines = [];
    if (j < tokens.length) {
      const products = q[i]
        .map((x, d) => [d, x * k[j][d]])
        .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]))
        .slice(0, 3)
        .map(([d, x]) => `${x.toFixed(2)} (channel ${d})`);
      lines.push(
        `Query “${tokens[i]}”, key “${tokens[j]}”: the score ${this.found.scores[i][j].toFixed(2)} is a sum ` +
          `of 32 products, the largest of them ${products.join(", ")}. ` +
          `Weight ${this.found.weights[i][j].toFixed(3)}.`,
      );
    }
    lines.push(`Rows sum to ${Math.min(...sums).toFixed(2)} at least and ${Math.max(...sums).toFixed(2)} at most.`);
    if (options.fault) lines.push(`${CHANGES[options.fault]} Weights are off by up to ${off.toFixed(2)}.`);
    parts.textContent = lines.join(" ");
  }
}

customElements.define("attention-explorer", AttentionExplorer);
