// Replaces the parts of a page that the server sends. What the reader has opened, picked or typed stays as it is.
(() => {
  "use strict";
  const status = document.getElementById("live");
  const say = (text, lost) => { status.textContent = text; status.classList.toggle("lost", Boolean(lost)); };

  const fresh = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  };

  // -- parts ---------------------------------------------------------------------------------------------------------
  const isHeld = (part) => {
    // Someone looks at an earlier round, or plays them: the part is replaced when the slider is at its end again.
    return [...part.querySelectorAll("input.slider")].some((one) => Number(one.value) < Number(one.max));
  };
  const replacePart = (name, html) => {
    const part = document.getElementById(name);
    if (!part) return;
    if (isHeld(part)) { waiting.set(name, html); return; }
    const opened = new Set([...part.querySelectorAll("details[open][data-key]")].map((one) => one.dataset.key));
    const focused = part.contains(document.activeElement) ? document.activeElement.closest("[data-key]")?.dataset.key : null;
    const scrolled = new Map([...part.querySelectorAll(".scroll")].map((one) => [one.getAttribute("aria-label"), [one.scrollLeft, one.scrollTop]]));
    part.replaceChildren(fresh(html));
    for (const one of part.querySelectorAll("details[data-key]")) if (opened.has(one.dataset.key)) one.open = true;
    for (const one of part.querySelectorAll(".scroll")) {
      const place = scrolled.get(one.getAttribute("aria-label"));
      if (place) [one.scrollLeft, one.scrollTop] = place;
    }
    if (focused) [...part.querySelectorAll("[data-key]")].find((one) => one.dataset.key === focused)?.querySelector("[tabindex], summary, button")?.focus({ preventScroll: true });
    window.atollPage.prepare(part);
  };
  const waiting = new Map();
  document.addEventListener("input", () => setTimeout(() => {
    for (const [name, html] of [...waiting]) {
      if (!isHeld(document.getElementById(name))) { waiting.delete(name); replacePart(name, html); }
    }
  }, 400));

  // -- the list of runs ------------------------------------------------------------------------------------------------
  const rows = document.getElementById("rows");
  const replaceRow = (id, html) => {
    const row = fresh(html).querySelector("tr");
    const old = document.getElementById(`run-${id}`);
    if (old) {
      const picked = old.querySelector("input[type=checkbox]")?.checked;
      const box = row.querySelector("input[type=checkbox]");
      if (picked && box) box.checked = true;
      const hadFocus = old.contains(document.activeElement);
      old.replaceWith(row);
      if (hadFocus) (row.querySelector("a") ?? box)?.focus({ preventScroll: true });
    } else {
      rows.append(row);
    }
  };
  const arrange = (order) => {
    const wanted = new Set(order);
    for (const row of [...rows.children]) if (!wanted.has(row.id.slice(4))) row.remove();
    order.forEach((id, place) => {
      const row = document.getElementById(`run-${id}`);
      if (row && rows.children[place] !== row) rows.insertBefore(row, rows.children[place] ?? null);
    });
  };
  const filter = () => {
    if (!rows) return;
    const words = document.getElementById("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = [...document.querySelectorAll("select.filter")].map((one) => [one.dataset.filter, one.value]).filter(([, value]) => value);
    for (const row of rows.children) {
      const fits = words.every((word) => row.dataset.text.includes(word)) && wanted.every(([key, value]) => row.dataset[key] === value);
      row.hidden = !fits;
    }
  };
  const offer = () => {
    // States and methods that appear later can be filtered, too.
    for (const select of document.querySelectorAll("select.filter")) {
      const known = new Set([...select.options].map((one) => one.value));
      for (const row of rows.children) {
        const value = row.dataset[select.dataset.filter];
        if (value && !known.has(value)) { known.add(value); select.append(new Option(value, value)); }
      }
    }
  };
  document.addEventListener("input", filter);
  document.addEventListener("change", filter);

  // -- the stream ------------------------------------------------------------------------------------------------------
  const here = location.pathname.replace(/\/$/, "");
  const wanted = new URLSearchParams(location.search);
  wanted.set("version", document.getElementById("content").dataset.version);
  const source = new EventSource(`${here}/events?${wanted}`);
  source.onopen = () => say("live");
  source.onerror = () => say("the dashboard does not answer; this page shows what it last said", true);
  source.onmessage = (event) => {
    const message = JSON.parse(event.data);
    for (const [name, html] of Object.entries(message.parts ?? {})) replacePart(name, html);
    for (const [id, html] of Object.entries(message.rows ?? {})) replaceRow(id, html);
    if (message.order) arrange(message.order);
    if (rows && (message.rows || message.order)) { offer(); filter(); }
    say("live");
    document.documentElement.dataset.updates = Number(document.documentElement.dataset.updates ?? 0) + 1;
  };
})();
