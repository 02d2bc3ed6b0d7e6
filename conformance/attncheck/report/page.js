"use strict";

// What is shown is in the address: #failures&dtypes=F32,BF16&subject=mine&find=mask

// The filters that an address asks for.
function parse(hash) {
  const words = new URLSearchParams(hash.replace(/^#/, ""));
  const dtypes = words.get("dtypes");
  return {
    failures: words.has("failures"),
    dtypes: dtypes === null ? null : dtypes.split(",").filter(Boolean),
    subject: words.get("subject") || "",
    find: words.get("find") || "",
  };
}

// The address that asks for these filters.
function format(asked) {
  const words = [];
  if (asked.failures) words.push("failures");
  if (asked.dtypes) words.push("dtypes=" + asked.dtypes.map(encodeURIComponent).join(","));
  for (const key of ["subject", "find"])
    if (asked[key]) words.push(key + "=" + encodeURIComponent(asked[key]));
  return words.join("&");
}

// Whether something is shown: what it does not say of itself does not hide it.
function shown(item, asked) {
  if (asked.failures && item.failing === "no") return false;
  if (asked.dtypes && item.dtype && !asked.dtypes.includes(item.dtype)) return false;
  if (asked.subject && item.subject && ![item.subject, item.other].includes(asked.subject))
    return false;
  const sought = asked.find.toLowerCase().split(/\s+/).filter(Boolean);
  if (item.text === undefined) return true;
  const text = item.text.toLowerCase();
  return sought.every((word) => text.includes(word));
}

function start() {
  const form = document.getElementById("filters");
  const boxes = [...form.querySelectorAll("[name=dtype]")];
  const items = document.querySelectorAll(
    "[data-dtype], [data-subject], [data-failing], [data-find]",
  );
  const find = (one) => ("find" in one.dataset ? one.textContent : undefined);

  function read() {
    const on = boxes.filter((box) => box.checked).map((box) => box.value);
    return {
      failures: form.elements.failures.checked,
      dtypes: on.length === boxes.length ? null : on,
      subject: form.elements.subject.value,
      find: form.elements.find.value,
    };
  }

  function write(asked) {
    form.elements.failures.checked = asked.failures;
    for (const box of boxes) box.checked = !asked.dtypes || asked.dtypes.includes(box.value);
    const known = [...form.elements.subject.options].some((one) => one.value === asked.subject);
    form.elements.subject.value = known ? asked.subject : "";
    form.elements.find.value = asked.find;
  }

  function apply() {
    const asked = read();
    for (const one of items) {
      one.hidden = !shown({ ...one.dataset, text: find(one) }, asked);
    }
    if (asked.failures)
      for (const row of document.querySelectorAll("#matrix tbody tr"))
        row.hidden ||= !row.querySelector(".failing:not([hidden])");
    spans(asked);
    for (const card of document.querySelectorAll(".card[data-kind]"))
      card.hidden = !card.querySelector(".case:not([hidden])");
    for (const maps of document.querySelectorAll(".maps"))
      maps.hidden = !maps.querySelector("figure:not([hidden])");
    const rows = document.querySelectorAll("#matrix tbody tr:not([hidden])").length;
    form.elements.count.value = `${rows} of ${form.dataset.clauses} clauses`;
  }

  // The heading of a subject is as wide as its columns that are shown.
  function spans(asked) {
    const width = asked.dtypes ? asked.dtypes.length : boxes.length;
    for (const head of document.querySelectorAll("th[data-span]")) {
      head.colSpan = Math.max(width, 1);
      head.hidden ||= width === 0;
    }
  }

  function load() {
    write(parse(location.hash));
    apply();
  }

  let waiting = 0;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      history.replaceState(null, "", "#" + format(read()));
      apply();
    }, 80);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", load);
  form.hidden = false;
  load();
}

if (typeof document !== "undefined") start();
