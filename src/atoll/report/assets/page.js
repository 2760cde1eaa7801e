// Hover, sliders, sortable tables and the theme. Without it every page still shows all of its content.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const SVG = "http://www.w3.org/2000/svg";

  // -- theme ---------------------------------------------------------------------------------------------------------
  const themes = ["auto", "light", "dark"];
  const remembered = () => { try { return localStorage.getItem("atoll-theme"); } catch { return null; } };
  const setTheme = (name) => {
    if (name === "auto") delete root.dataset.theme; else root.dataset.theme = name;
    for (const button of document.querySelectorAll("button.theme")) button.textContent = `Theme: ${name}`;
    try { localStorage.setItem("atoll-theme", name); } catch { /* a file that is opened without storage */ }
  };

  // -- hover ---------------------------------------------------------------------------------------------------------
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");

  const line = (word, value, look) => {
    const row = document.createElement("div");
    const name = document.createElement("span");
    name.textContent = word;
    const number = document.createElement("b");
    number.textContent = value;
    row.append(name, number);
    return row;
  };

  const showTip = (rows, frame, x, y) => {
    tip.replaceChildren(...rows);
    tip.hidden = false;
    const box = frame.getBoundingClientRect();
    const left = Math.min(Math.max(4, box.left + x + 14), innerWidth - tip.offsetWidth - 8);
    const above = box.top + y - tip.offsetHeight - 12;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above < 4 ? box.top + y + 16 : above) + scrollY}px`;
  };

  const hideTip = (plot) => {
    tip.hidden = true;
    plot.querySelectorAll(".guide, .halo").forEach((one) => one.remove());
  };

  const nearest = (list, distance) => {
    let best = 0;
    for (let i = 1; i < list.length; i++) if (distance(list[i]) < distance(list[best])) best = i;
    return best;
  };

  const showLines = (plot, data, place) => {
    const box = plot.getBoundingClientRect();
    const x = data.at[place] / 1000 * box.width;
    plot.querySelectorAll(".guide").forEach((one) => one.remove());
    const guide = document.createElementNS(SVG, "line");
    for (const [key, value] of [["x1", x], ["x2", x], ["y1", 0], ["y2", box.height], ["class", "guide"]]) guide.setAttribute(key, value);
    plot.append(guide);
    const rows = [line(data.word, data.xs[place])];
    for (const one of data.series) if (one.v[place]) rows.push(line(one.n, one.v[place], one.c));
    showTip(rows, plot, x, 20);
  };

  const showPoint = (plot, points, place) => {
    const box = plot.getBoundingClientRect();
    const [across, y, text] = points[place];
    const x = across / 1000 * box.width;
    plot.querySelectorAll(".halo").forEach((one) => one.remove());
    const halo = document.createElementNS(SVG, "circle");
    for (const [key, value] of [["cx", x], ["cy", y], ["r", 10], ["class", "halo"]]) halo.setAttribute(key, value);
    plot.append(halo);
    showTip(text.split("\n").map((part) => { const row = document.createElement("div"); row.textContent = part; return row; }), plot, x, y);
  };

  const layerOf = (plot) => {
    const layers = [...plot.querySelectorAll("g.layer")];
    return Math.max(0, layers.findIndex((one) => one.getAttribute("display") !== "none"));
  };

  const dataOf = (plot) => (plot.hoverData ??= JSON.parse(plot.dataset.hover));

  const show = (plot, place) => {
    const data = dataOf(plot);
    const points = data.kind === "lines" ? data.at : data.layers[layerOf(plot)];
    if (!points.length) return;
    plot.hoverPlace = Math.min(Math.max(0, place), points.length - 1);
    if (data.kind === "lines") showLines(plot, data, plot.hoverPlace);
    else showPoint(plot, points, plot.hoverPlace);
  };

  const plotOf = (target) => target.closest?.(".frame")?.querySelector("[data-hover]");

  document.addEventListener("pointermove", (event) => {
    const plot = plotOf(event.target);
    if (document.lastPlot && document.lastPlot !== plot) hideTip(document.lastPlot);
    document.lastPlot = plot;
    if (!plot) return;
    const data = dataOf(plot), box = plot.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    if (x < -20 || x > box.width + 20) { hideTip(plot); return; }
    if (data.kind === "lines") {
      show(plot, nearest(data.at, (at) => Math.abs(at / 1000 * box.width - x)));
    } else {
      const points = data.layers[layerOf(plot)];
      if (!points.length) return;
      const far = (point) => Math.hypot(point[0] / 1000 * box.width - x, point[1] - y);
      const place = nearest(points, far);
      if (far(points[place]) < 40) show(plot, place); else hideTip(plot);
    }
  }, { passive: true });
  document.addEventListener("pointerleave", () => document.lastPlot && hideTip(document.lastPlot));
  document.addEventListener("focusin", (event) => {
    const plot = event.target.classList?.contains("frame") && event.target.querySelector("[data-hover]");
    if (plot && event.target.matches(":focus-visible")) show(plot, 1e9);
  });
  document.addEventListener("focusout", (event) => { const plot = plotOf(event.target); if (plot) hideTip(plot); });
  document.addEventListener("keydown", (event) => {
    const plot = event.target.classList?.contains("frame") && event.target.querySelector("[data-hover]");
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (event.key === "Escape" && document.lastPlot) hideTip(document.lastPlot);
    if (!plot || step === undefined) return;
    event.preventDefault();
    document.lastPlot = plot;
    show(plot, (plot.hoverPlace ?? 0) + step);
  });

  // -- sliders -------------------------------------------------------------------------------------------------------
  const moveTo = (figure, place) => {
    const layers = [...figure.querySelectorAll("g.layer")];
    layers.forEach((layer, number) => number === place ? layer.removeAttribute("display") : layer.setAttribute("display", "none"));
    figure.querySelector("output").textContent = layers[place].dataset.name;
    figure.querySelector("input.slider").setAttribute("aria-valuetext", layers[place].dataset.name);
  };
  document.addEventListener("input", (event) => {
    if (event.target.matches("input.slider")) moveTo(event.target.closest("figure"), Number(event.target.value));
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.classList.contains("theme")) {
      setTheme(themes[(themes.indexOf(root.dataset.theme ?? "auto") + 1) % themes.length]);
    } else if (button.classList.contains("play")) {
      play(button);
    } else if (button.classList.contains("sort")) {
      sort(button.closest("th"));
    } else if (button.classList.contains("copy")) {
      navigator.clipboard?.writeText(button.parentElement.querySelector("pre").textContent);
    }
  });
  const play = (button) => {
    const figure = button.closest("figure"), slider = figure.querySelector("input.slider");
    if (button.timer) { clearInterval(button.timer); button.timer = null; button.textContent = "Play"; return; }
    if (Number(slider.value) >= Number(slider.max)) slider.value = 0;
    button.textContent = "Stop";
    moveTo(figure, Number(slider.value));
    button.timer = setInterval(() => {
      if (Number(slider.value) >= Number(slider.max) || !slider.isConnected) {
        clearInterval(button.timer); button.timer = null; button.textContent = "Play"; return;
      }
      slider.value = Number(slider.value) + 1;
      moveTo(figure, Number(slider.value));
    }, 180);
  };

  // -- choices: one of several views of the same thing ------------------------------------------------------------------
  const choose = (select) => {
    for (const view of select.closest(".choice").querySelectorAll("[data-view]")) view.hidden = view.dataset.view !== select.value;
  };
  document.addEventListener("change", (event) => { if (event.target.matches(".choice select")) choose(event.target); });

  // -- sortable tables -------------------------------------------------------------------------------------------------
  const valueOf = (row, place) => {
    const text = row.children[place].dataset.value ?? row.children[place].textContent.trim();
    const number = parseFloat(text.replaceAll(",", ""));
    return text === "" ? -Infinity : Number.isNaN(number) ? text : number;
  };
  const sort = (head) => {
    const table = head.closest("table"), place = [...head.parentElement.children].indexOf(head);
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [valueOf(a, place), valueOf(b, place)];
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
  };
  const prepare = (part) => {
    for (const head of part.querySelectorAll("table.sortable thead th")) {
      if (head.querySelector("button") || !head.textContent) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = head.textContent;
      head.replaceChildren(button);
    }
    part.querySelectorAll(".choice select").forEach(choose);
  };

  addEventListener("beforeprint", () => document.querySelectorAll("details.opened-in-print").forEach((one) => { one.open = true; }));
  const start = () => {
    document.body.append(tip);
    setTheme(themes.includes(remembered()) ? remembered() : "auto");
    prepare(document);
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
  window.atollPage = { prepare };
})();
