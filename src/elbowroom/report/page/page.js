"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 15, FEATURES = 25, SVG = "http://www.w3.org/2000/svg";
  const SIGNS = {certified: "✓", misclassified: "✗", not_certified: "?", nonfinite: "∅", error: "!"};
  const MAP = ["#ffffd9", "#edf8b1", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#253494", "#081d58"];
  const SIDES = ["#3b0f4f", "#7a4b8a", "#a99aa8", "#e0cf9c", "#fff3b0"];  // darker: down, lighter: up
  const $ = (id) => document.getElementById(id);
  const form = $("filters"), body = $("rows").tBodies[0], head = $("rows").tHead.rows[0], detail = $("detail");
  const readers = [];
  const state = {run: 0, key: "number", down: false, page: 0, shown: [], at: null};

  // All that comes from files is written as text.
  const make = (tag, options = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name === "text") made.textContent = value;
      else if (name === "class") made.className = value;
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  };
  const drawn = (tag, attributes) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const percent = (share) => `${Math.abs(share) < 10 ? Number((100 * share).toPrecision(3)) : Math.floor(100 * share).toLocaleString("en")} %`;
  const run = () => data.runs[state.run];
  const pair = (k) => data.pairs.find((one) => one.new === k);
  const status = (one, row) => data.statuses[one.table.status[row]];
  const spaced = (word) => word.replace("_", " ");
  const label = (one, row) => {
    const k = one.table.label[row];
    return k === null ? "" : one.classes && k in one.classes ? one.classes[k] : String(k);
  };
  const shrink = (k, number) => {
    const found = pair(k);
    return found && number in found.shrink ? found.shrink[number] : null;
  };

  // --- the table of inputs

  const columns = () => {
    const one = run(), t = one.table, k = state.run;
    const found = [
      {key: "number", head: "input", long: Boolean(t.name), value: (r) => t.number[r], text: (r) => t.name && t.name[r] !== null ? `${t.number[r]} · ${t.name[r]}` : String(t.number[r])},
      {key: "label", head: "label", long: Boolean(one.classes), value: (r) => label(one, r), text: (r) => label(one, r), hidden: !one.decides},
      {key: "status", head: "status", value: (r) => t.status[r], text: (r) => `${SIGNS[status(one, r)]} ${spaced(status(one, r))}`},
      {key: "size", head: "size", title: `geometric mean of the extents (${one.extent})`, value: (r) => t.size[r]},
      {key: "ratio", head: "ratio", title: "to the region with one radius for all features", value: (r) => t.ratio[r]},
      {key: "reach", head: "reach", title: "at how many times the region a counterexample was found", value: (r) => t.reach[r], hidden: !t.reach},
      {key: "share", head: "least room", long: true, title: one.byShare ? `as a share of ${one.axis}` : one.extent, value: (r) => t.share[r],
        text: (r) => t.least[r] === null ? "" : `${one.names[t.least[r]]}: ${one.byShare ? percent(t.share[r]) : t.share[r]}`},
      {key: "shrink", head: "change", title: "of the size, from the first run to this one", value: (r) => shrink(k, t.number[r]), hidden: !pair(k),
        text: (r) => { const s = shrink(k, t.number[r]); return s === null ? "" : status(one, r) !== "certified" ? "lost" : `${s > 0 ? "−" : "+"}${percent(Math.abs(s))}`; }},
      {key: "message", head: "reason", long: true, value: (r) => t.messages[t.message[r]], text: (r) => t.messages[t.message[r]], hidden: t.messages.every((m) => !m)},
    ];
    return found.filter((column) => !column.hidden);
  };
  const compared = (a, b) => {
    if (a === b) return 0;
    if (a === null || a === "") return 1;  // what is not there comes last, either way
    if (b === null || b === "") return -1;
    const order = typeof a === "string" ? a.localeCompare(b, "en", {numeric: true}) : a - b;
    return state.down ? -order : order;
  };
  const filtered = () => {
    const one = run(), t = one.table, f = form.elements;
    const words = f.search.value.trim().toLowerCase();
    const least = f.ratio.value === "" ? null : Number(f.ratio.value), most = f.reach.value === "" ? null : Number(f.reach.value);
    const rows = [];
    for (let r = 0; r < t.number.length; r++) {
      if (f.status.value !== "" && t.status[r] !== Number(f.status.value)) continue;
      if (f.label.value !== "" && String(t.label[r]) !== f.label.value) continue;
      if (least !== null && !(t.ratio[r] !== null && t.ratio[r] >= least)) continue;
      if (most !== null && !(t.reach && t.reach[r] !== null && t.reach[r] <= most)) continue;
      if (f.detailed.checked && !(t.number[r] in one.details)) continue;
      if (words) {
        const text = `${t.name ? t.name[r] : ""}\n${label(one, r)}\n${t.messages[t.message[r]]}\n${t.least[r] === null ? "" : one.names[t.least[r]]}`;
        if (String(t.number[r]) !== words && !text.toLowerCase().includes(words)) continue;
      }
      rows.push(r);
    }
    const column = columns().find((each) => each.key === state.key) || columns()[0];
    return rows.map((r) => [r, column.value(r)]).sort((a, b) => compared(a[1], b[1]) || a[0] - b[0]).map((each) => each[0]);
  };
  const heads = () => {
    head.replaceChildren(...columns().map((column) => {
      const sorted = column.key === state.key ? (state.down ? "descending" : "ascending") : "none";
      const button = make("button", {type: "button", text: column.head + {none: "", ascending: " ▲", descending: " ▼"}[sorted], title: column.title || "", "data-key": column.key});
      button.addEventListener("click", () => {
        state.down = state.key === column.key ? !state.down : false;
        state.key = column.key;
        state.page = 0;
        fill();
        [...head.querySelectorAll("button")].find((each) => each.dataset.key === column.key).focus();
      });
      return make("th", {scope: "col", "aria-sort": sorted}, button);
    }));
  };
  const fill = () => {
    state.shown = filtered();
    const pages = Math.max(1, Math.ceil(state.shown.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    heads();
    const from = state.page * PAGE, rows = state.shown.slice(from, from + PAGE), cells = columns(), one = run();
    body.replaceChildren(...rows.map((r) => {
      const row = make("tr", {tabindex: "-1", "data-row": r, "aria-selected": String(one.table.number[r] === state.at)});
      row.append(...cells.map((column) => {
        const value = column.text ? column.text(r) : column.value(r);
        return make("td", {text: value === null ? "–" : String(value), class: column.long ? "long" : ""});
      }));
      return row;
    }));
    const focusable = body.querySelector('[aria-selected="true"]') || body.rows[0];
    if (focusable) focusable.tabIndex = 0;
    const whole = one.table.number.length;
    $("count").textContent = state.shown.length === whole ? `${whole.toLocaleString("en")} inputs` : `${state.shown.length.toLocaleString("en")} of ${whole.toLocaleString("en")} inputs`;
    $("place").textContent = `page ${state.page + 1} of ${pages}`;
    $("earlier").disabled = state.page === 0;
    $("later").disabled = state.page === pages - 1;
  };
  const turn = (by, last) => {
    const pages = Math.ceil(state.shown.length / PAGE), to = state.page + by;
    if (to < 0 || to >= pages) return;
    state.page = to;
    fill();
    const row = last ? body.rows[body.rows.length - 1] : body.rows[0];
    choose(Number(row.dataset.row), true);
  };
  const choose = (r, focus) => {
    state.at = run().table.number[r];
    for (const row of body.rows) {
      const own = Number(row.dataset.row) === r;
      row.setAttribute("aria-selected", String(own));
      row.tabIndex = own ? 0 : -1;
      if (own && focus) row.focus();
    }
    show();
  };
  const goTo = (number) => {
    const r = run().table.number.indexOf(number);
    if (r < 0) return;
    if (!state.shown.includes(r)) { form.reset(); form.elements.run.value = String(state.run); state.shown = filtered(); }
    state.page = Math.floor(state.shown.indexOf(r) / PAGE);
    state.at = number;
    fill();
    show();
    detail.scrollIntoView({block: "start"});
  };

  // --- one input

  const show = () => {
    detail.replaceChildren();
    readers.length = 0;
    if (state.at === null) return;
    const beside = [state.run];
    for (let k = 0; k < data.runs.length; k++) {
      const found = pair(k) || (k === 0 && pair(state.run));
      if (k !== state.run && found && state.at in found.shrink && (k === 0 || state.run === 0 || pair(state.run))) beside.push(k);
    }
    beside.sort((a, b) => a - b);
    const scale = mapScale(beside);
    const names = run().table.name, row = run().table.number.indexOf(state.at), name = names && row >= 0 ? names[row] : null;
    detail.append(make("h3", {text: name === null ? `Input ${state.at}` : `Input ${state.at}: ${name}`}), make("div", {class: "one"}, ...beside.map((k) => card(data.runs[k], scale))));
  };
  const card = (one, scale) => {
    const r = one.table.number.indexOf(state.at), made = make("article", {class: "card"});
    if (data.runs.length > 1) made.append(make("h3", {text: one.title}));
    if (r < 0) { made.append(make("p", {text: "not in this run"})); return made; }
    made.append(...sentences(one, r).map((text) => make("p", {text})));
    const found = one.details[state.at];
    if (!found) {
      made.append(make("p", {class: "quiet", text: `The features of this input are not in the page; elbowroom report --inputs ${state.at} puts them in.`}));
      return made;
    }
    if (one.image) made.append(pictures(one, found, scale));
    if (found.flags) made.append(features(one, found));
    return made;
  };
  const sentences = (one, r) => {
    const t = one.table, word = status(one, r), found = one.details[state.at], said = [];
    const named = one.decides && t.label[r] !== null ? ` ${word === "certified" ? "The label that stays" : "Label"}: ${label(one, r)}.` : "";
    said.push(`${SIGNS[word]} ${spaced(word)}.${named}`);
    if (t.messages[t.message[r]]) said.push(t.messages[t.message[r]]);
    if (word !== "certified") return said;
    said.push(`Size: ${t.size[r]} (geometric mean of the extents), ${t.ratio[r]} times the region with one radius.`);
    if (found && found.outputs) {
      for (const o of found.outputs) {
        const name = one.classes && o.output in one.classes ? one.classes[o.output] : `output ${o.output}`;
        said.push(`${name} stays ${[o.above === null ? "" : `above ${o.above}`, o.below === null ? "" : `below ${o.below}`].filter(Boolean).join(" and ")}.`);
      }
    }
    if (t.reach) said.push(t.reach[r] === null ? "No counterexample was found, however far the region was scaled up." : `A counterexample was found at ${t.reach[r]} times the region (at most).`);
    if (found && found.search) said.push(`The search ended ${found.search}.`);
    return said;
  };

  // --- images

  const places = (image) => {
    const {height, width, channels, last} = image;
    return (row, column) => Array.from({length: channels}, (_, c) => last ? (row * width + column) * channels + c : (c * height + row) * width + column);
  };
  // What does not move: "f", held by whoever asked, or "d", since no further value is proved.
  const still = (found, k) => found.flags[k] === "f" || found.flags[k] === "d";
  const holds = (found, k) => !still(found, k) ? "" : found.flags[k] === "d" ? "no further value proved" : "held fixed";
  const roomOf = (one, found, k) => {
    if (still(found, k)) return 0;
    return found.share && found.share[k] !== null ? found.share[k] : Number(found.extent[k]);
  };
  const mapScale = (shown) => {
    let least = Infinity, most = 0;
    for (const k of shown) {
      const found = data.runs[k].details[state.at];
      for (let i = 0; found && i < found.flags.length; i++) {
        const room = roomOf(data.runs[k], found, i);
        if (room > 0) { least = Math.min(least, room); most = Math.max(most, room); }
      }
    }
    return {least, most};
  };
  const mixed = (colours, at) => {
    const place = Math.max(0, Math.min(1, at)) * (colours.length - 1), k = Math.min(Math.floor(place), colours.length - 2);
    return [1, 3, 5].map((c) => Math.round(parseInt(colours[k].slice(c, c + 2), 16) * (1 - place + k) + parseInt(colours[k + 1].slice(c, c + 2), 16) * (place - k)));
  };
  const ODD = [214, 90, 160];
  const picture = (one, caption, colour, ramp, read) => {
    const {height, width} = one.image, at = places(one.image);
    const canvas = make("canvas", {width, height, role: "img", tabindex: "0", "aria-label": `${caption}; arrow keys read the pixels`});
    const context = canvas.getContext("2d"), pixels = context.createImageData(width, height);
    for (let row = 0; row < height; row++) for (let column = 0; column < width; column++) {
      pixels.data.set([...colour(at(row, column)), 255], 4 * (row * width + column));
    }
    context.putImageData(pixels, 0, 0);
    const cursor = make("i"), frame = make("div", {class: "frame"}, canvas, cursor);
    let place = [Math.floor(height / 2), Math.floor(width / 2)];
    canvas.addEventListener("mousemove", (event) => {
      const box = canvas.getBoundingClientRect();
      place = [Math.floor((event.clientY - box.top) / box.height * height), Math.floor((event.clientX - box.left) / box.width * width)];
      place = [Math.max(0, Math.min(height - 1, place[0])), Math.max(0, Math.min(width - 1, place[1]))];
      read(place[0], place[1]);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
      if (!step) return;
      event.preventDefault();
      place = [Math.max(0, Math.min(height - 1, place[0] + step[0])), Math.max(0, Math.min(width - 1, place[1] + step[1]))];
      read(place[0], place[1]);
    });
    canvas.addEventListener("focus", () => read(place[0], place[1]));
    const made = make("figure", {}, make("figcaption", {text: caption}), frame);
    if (ramp) {
      const bar = drawn("svg", {class: "ramp", viewBox: `0 0 ${10 * ramp.colours.length} 8`, preserveAspectRatio: "none", "aria-hidden": "true"});
      ramp.colours.forEach((fill, k) => bar.append(drawn("rect", {x: 10 * k, y: 0, width: 10.5, height: 8, fill})));
      made.append(bar, make("p", {class: "ends"}, make("span", {text: ramp.from}), make("span", {text: ramp.to})));
    }
    return {made, cursor, canvas};
  };
  const extreme = (values, which, start) => values.filter((v) => v !== null && Number.isFinite(v)).reduce((a, b) => which(a, b), start);
  const pictures = (one, found, scale) => {
    const at = places(one.image), readout = make("p", {class: "readout", "aria-live": "polite", text: "Point at a pixel for its range."}), shown = [];
    // A pixel is read in all runs at once.
    const read = (row, column) => readers.forEach((each) => each(row, column));
    readers.push((row, column) => {
      if (row >= one.image.height || column >= one.image.width) return;
      readout.textContent = `row ${row}, column ${column}. ${at(row, column).map((k, c, all) => (all.length > 1 ? `channel ${c}: ` : "") + range(one, found, k)).join("; ")}`;
      for (const {cursor, canvas} of shown) {
        const w = canvas.clientWidth / one.image.width, h = canvas.clientHeight / one.image.height;
        Object.assign(cursor.style, {display: "block", left: `${column * w}px`, top: `${row * h}px`, width: `${Math.max(5, w) + 2}px`, height: `${Math.max(5, h) + 2}px`});
      }
    });
    const x = found.x.map(Number);
    const low = extreme(one.low.some((v) => v !== null) ? one.low : x, Math.min, Infinity), high = extreme(one.high.some((v) => v !== null) ? one.high : x, Math.max, -Infinity);
    const grey = (k) => Number.isFinite(x[k]) ? Math.round(255 * Math.max(0, Math.min(1, (x[k] - low) / (high - low || 1)))) : null;
    shown.push(picture(one, "input", (ks) => {
      const found = ks.map(grey);
      return found.includes(null) ? ODD : found.length >= 3 ? found.slice(0, 3) : [found[0], found[0], found[0]];
    }, null, read));
    if (found.flags && scale.most > 0) {
      const text = (value) => found.share && found.share.some((s) => s !== null) ? percent(value) : String(Number(value.toPrecision(3)));
      const whole = Math.log(scale.most / scale.least) || 1;
      shown.push(picture(one, "room; darker: more", (ks) => {
        const room = Math.min(...ks.map((k) => roomOf(one, found, k)));
        return room > 0 ? mixed(MAP, Math.log(room / scale.least) / whole) : [150, 150, 150];
      }, {colours: MAP, from: text(scale.least), to: text(scale.most)}, read));
      if (found.lower) {
        const side = x.map((value, k) => {
          const up = Math.max(0, Number(found.upper[k]) - value), down = Math.max(0, value - Number(found.lower[k]));
          return up + down > 0 ? (up - down) / (up + down) : 0;
        });
        if (side.some((s) => Math.abs(s) > 0.02)) shown.push(picture(one, "one-sided; darker: down", (ks) => {
          const k = ks.reduce((a, b) => roomOf(one, found, a) <= roomOf(one, found, b) ? a : b);
          return mixed(SIDES, side[k] / 2 + 0.5);
        }, {colours: SIDES, from: "only down", to: "only up"}, read));
      }
    }
    return make("div", {}, make("div", {class: "pictures"}, ...shown.map((each) => each.made)), readout);
  };

  // --- features

  const unit = (one, k) => one.units && one.units[k] ? ` ${one.units[k]}` : "";
  const range = (one, found, k) => {
    if (!found.flags) return `value ${found.x[k]}`;
    if (still(found, k)) return `value ${found.x[k]}${unit(one, k)}, ${holds(found, k)}`;
    const ends = found.lower ? `certified from ${found.lower[k]} to ${found.upper[k]}${unit(one, k)}` : `${one.extent} ${found.extent[k]}${unit(one, k)}`;
    const seen = found.below ? [found.below[k] === null ? "" : `seen below at ${found.below[k]}`, found.above[k] === null ? "" : `above at ${found.above[k]}`].filter(Boolean).join(", ") : "";
    return `value ${found.x[k]}, ${ends}${found.flags[k] === "c" ? ", at its cap" : ""}${seen ? `; counterexample ${seen}` : ""}`;
  };
  const bar = (one, found, k) => {
    const x = Number(found.x[k]), extent = Number(found.extent[k]);
    const from = found.lower ? Number(found.lower[k]) : x - extent, to = found.lower ? Number(found.upper[k]) : x + extent;
    const seen = found.below ? [found.below[k], found.above[k]].filter((v) => v !== null).map(Number) : [];
    let low = one.low[k], high = one.high[k];
    if (low === null || high === null) { low = Math.min(from, ...seen) - (to - from); high = Math.max(to, ...seen) + (to - from); }
    low = Math.min(low, from, x);
    high = Math.max(high, to, x);
    const place = (v) => 2 + 196 * Math.max(0, Math.min(1, (v - low) / (high - low || 1)));
    const made = drawn("svg", {viewBox: "0 0 200 18", role: "img", "aria-label": range(one, found, k)});
    const note = drawn("title", {});
    note.textContent = range(one, found, k);
    made.append(note, drawn("rect", {class: "track", x: 2, y: 6, width: 196, height: 6}));
    if (!still(found, k)) made.append(drawn("rect", {class: found.lower ? "range" : "alone", x: place(from), y: 3, width: Math.max(1, place(to) - place(from)), height: 12}));
    for (const v of seen) made.append(drawn("path", {class: "seen", d: `M${place(v) - 3} 3l6 12m0 -12l-6 12`}));
    made.append(drawn("circle", {class: "value", cx: place(x), cy: 9, r: 3.6}));
    return made;
  };
  const features = (one, found) => {
    const grouped = new Map();
    for (const c of found.categories) for (const k of c.entries) grouped.set(k, c);
    const all = found.x.map((_, k) => k).filter((k) => !grouped.has(k));
    const rank = (k) => found.flags[k] === "d" ? -1 : still(found, k) ? Infinity : one.byShare ? (found.share[k] === null ? 1e300 : found.share[k]) : Number(found.extent[k]);
    all.sort((a, b) => rank(a) - rank(b) || a - b);
    const body = make("tbody"), more = make("button", {type: "button"});
    let count = 0;
    const add = (most) => {
      for (const k of all.slice(count, count + most)) {
        const fixed = still(found, k);
        const ends = fixed ? found.x[k] : found.lower ? `${found.lower[k]} – ${found.upper[k]}` : `± ${found.extent[k]} alone`;
        const mark = [holds(found, k), found.flags[k] === "c" ? "at its cap" : ""].join("");
        body.append(make("tr", {}, make("td", {class: "name", text: one.names[k]}), make("td", {class: "axis"}, bar(one, found, k)),
          make("td", {text: fixed ? "" : found.x[k]}), make("td", {text: `${ends}${unit(one, k)}`}), make("td", {text: fixed || found.share[k] === null ? "" : percent(found.share[k])}), make("td", {class: "mark", text: mark})));
      }
      count += most;
      more.textContent = `Show more of the ${all.length.toLocaleString("en")} features`;
      more.hidden = count >= all.length;
    };
    add(FEATURES);
    for (const c of found.categories) {
      body.append(make("tr", {}, make("td", {class: "name", text: c.column}), make("td"), make("td", {text: c.level}), make("td", {text: c.levels.length > 1 ? `any of ${c.levels.join(", ")}` : c.level}), make("td"), make("td", {class: "mark", text: c.levels.length > 1 ? "" : "as it is"})));
    }
    more.addEventListener("click", () => add(100));
    const title = one.byShare ? (one.axis.length < 40 ? `share of ${one.axis}` : "share") : "";
    const table = make("table", {class: "features"}, make("caption", {text: `Features, least room first${found.below ? "; ×: where a counterexample was seen while the others stay in their ranges" : ""}${found.lower ? "" : "; how far each may move while all others stay"}`}),
      make("thead", {}, make("tr", {}, ...["feature", "range", "value", found.lower ? "from – to" : "extent", title, ""].map((text) => make("th", {scope: "col", text})))), body);
    const made = make("div", {class: "scroll"}, table, more);
    if (!one.image) return made;
    return make("details", {}, make("summary", {text: "Pixel by pixel"}), made);
  };

  // --- what people do

  const options = () => {
    const one = run(), f = form.elements, counts = new Map();
    one.table.label.forEach((k) => { if (k !== null) counts.set(k, (counts.get(k) || 0) + 1); });
    const names = [...counts.keys()].sort((a, b) => a - b).slice(0, 1000);
    f.label.replaceChildren(make("option", {value: "", text: "all"}), ...names.map((k) => make("option", {value: k, text: one.classes && k in one.classes ? one.classes[k] : String(k)})));
    const states = [...new Set(one.table.status)].sort((a, b) => a - b);
    f.status.replaceChildren(make("option", {value: "", text: "all"}), ...states.map((k) => make("option", {value: k, text: spaced(data.statuses[k])})));
    $("reach-choice").hidden = !one.table.reach;
    $("label-choice").hidden = !one.decides;
    $("run-choice").hidden = data.runs.length < 2;
  };
  const begin = () => {
    form.elements.run.replaceChildren(...data.runs.map((one, k) => make("option", {value: k, text: one.title})));
    options();
    fill();
    const good = state.shown.filter((r) => run().table.number[r] in run().details);
    if (good.length) choose(good[0], false);
  };
  let waiting = 0;
  const later = () => { clearTimeout(waiting); waiting = setTimeout(() => { state.page = 0; fill(); }, 120); };
  form.addEventListener("input", (event) => {
    if (event.target.name === "run") { state.run = Number(event.target.value); options(); if (!columns().some((c) => c.key === state.key)) state.key = "number"; state.page = 0; fill(); show(); } else later();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => { const kept = state.run; setTimeout(() => { form.elements.run.value = String(kept); state.page = 0; fill(); }); });
  body.addEventListener("click", (event) => { const row = event.target.closest("tr"); if (row) choose(Number(row.dataset.row), true); });
  body.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr");
    if (!row) return;
    const rows = [...body.rows], k = rows.indexOf(row);
    const acts = {
      ArrowDown: () => k + 1 < rows.length ? choose(Number(rows[k + 1].dataset.row), true) : turn(1, false),
      ArrowUp: () => k > 0 ? choose(Number(rows[k - 1].dataset.row), true) : turn(-1, true),
      PageDown: () => turn(1, false), PageUp: () => turn(-1, false),
      Home: () => choose(Number(rows[0].dataset.row), true), End: () => choose(Number(rows[rows.length - 1].dataset.row), true),
      Enter: () => { choose(Number(row.dataset.row), false); detail.focus(); }, " ": () => choose(Number(row.dataset.row), true),
    };
    if (event.key in acts) { event.preventDefault(); acts[event.key](); }
  });
  $("earlier").addEventListener("click", () => { state.page -= 1; fill(); });
  $("later").addEventListener("click", () => { state.page += 1; fill(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) { event.preventDefault(); form.elements.search.focus(); }
  });
  document.addEventListener("click", (event) => { const link = event.target.closest("[data-input]"); if (link) goTo(Number(link.dataset.input)); });
  const dark = () => document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const named = () => { $("theme").textContent = dark() ? "Light" : "Dark"; $("theme").setAttribute("aria-pressed", String(dark())); };
  $("theme").addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; named(); });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
  named();
  begin();
})();
