'use strict';
// Lanes, marks and links from the data above. Two rules carry the whole:
// a frame draws the lanes in sight and nothing else, and the marks of a lane
// are merged in one walk over those in the time shown.
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($('data').textContent);
  const KINDS = ['Human message', 'Upstream missing', 'Goal changed', 'Child spawned', 'Run completed', 'Run failed', 'Compacted', 'Adopted'];
  // Of merged marks the one that matters most lends its shape.
  const WEIGHT = [7, 6, 5, 3, 1, 4, 0, 2];
  const BY_WEIGHT = [0, 1, 2, 5, 3, 7, 4, 6];
  const LOWEST = 32, HIGHEST = 52;
  const APART = 3;
  const RADIUS = 6;
  /** With so many marks in sight or fewer, what each is stands beside it. */
  const NAMED = 48;
  const PAGE = 200;

  // ---- the data, in columns ------------------------------------------------

  const count = data.events.sequence.length;
  const sequence = new Float64Array(count);
  const at = new Float64Array(count);
  for (let i = 0, s = 0, t = 0; i < count; i++) {
    sequence[i] = s += data.events.sequence[i];
    at[i] = t += data.events.at[i];
  }
  const ofSession = Uint32Array.from(data.events.session);
  const kindOf = Uint8Array.from(data.events.kind);
  const { by, summary, run } = data.events;
  const text = data.texts;
  const sessions = data.sessions.map((session, id) => {
    const qualified = session.key.startsWith('agent:');
    return {
      ...session, id,
      short: qualified ? session.key.slice(6) : session.agent === 'main' ? session.key : `${session.key} (${session.agent})`,
      watches: [], watchers: [], kinds: new Uint32Array(KINDS.length), total: 0, latest: 0,
      events: new Uint32Array(0), shown: new Uint32Array(0),
    };
  });
  data.watches.forEach((watch) => {
    sessions[watch.watcher].watches.push(watch);
    sessions[watch.target].watchers.push(watch);
  });
  {
    // By time within each session: the log is in the order of recording.
    const order = Uint32Array.from({ length: count }, (_, i) => i).sort((a, b) => at[a] - at[b] || a - b);
    for (let i = 0; i < count; i++) sessions[ofSession[i]].total++;
    for (const session of sessions) {
      session.events = new Uint32Array(session.total);
      session.total = 0;
    }
    for (const i of order) {
      const session = sessions[ofSession[i]];
      session.events[session.total++] = i;
      session.kinds[kindOf[i]]++;
      session.latest = at[i];
    }
  }
  const pendingOf = (session) => session.watches.filter((watch) => watch.since !== undefined);
  const pending = data.watches.filter((watch) => watch.since !== undefined);
  const kindTotals = KINDS.map((_, kind) => sessions.reduce((sum, session) => sum + session.kinds[kind], 0));

  let first = Infinity, last = -Infinity;
  for (let i = 0; i < count; i++) {
    if (at[i] < first) first = at[i];
    if (at[i] > last) last = at[i];
  }
  for (const watch of pending) {
    first = Math.min(first, watch.since);
    last = Math.max(last, watch.since);
  }
  if (first > last) [first, last] = [data.madeAt - 3600e3, data.madeAt];
  // The moment it was made is part of the picture when it is near.
  if (data.madeAt > last && data.madeAt - last < (last - first) * 0.25 + 60e3) last = data.madeAt;
  const margin = Math.max((last - first) * 0.03, 500);
  const all = { from: first - margin, to: last + margin };
  const SHORTEST = 20;

  /** The event of a sequence; -1 when it is not here. */
  function indexOf(wanted) {
    let low = 0, high = count - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (sequence[middle] === wanted) return middle;
      if (sequence[middle] < wanted) low = middle + 1; else high = middle - 1;
    }
    return -1;
  }

  // ---- what is chosen ------------------------------------------------------

  const view = { ...all };
  const shownKinds = KINDS.map(() => true);
  const state = { find: '', order: 'key', onlyPending: false, session: null, marks: null, table: false, page: 0, hover: null };
  let lanes = sessions;
  let laneOf = new Int32Array(sessions.length);

  function chooseKinds() {
    const every = shownKinds.every(Boolean);
    for (const session of sessions) session.shown = every ? session.events : session.events.filter((i) => shownKinds[kindOf[i]]);
  }

  function chooseLanes() {
    const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
    lanes = sessions.filter((session) => {
      const name = `${session.key} ${session.agent}`.toLowerCase();
      if (!words.every((word) => name.includes(word))) return false;
      return !state.onlyPending || session.watches.some(isPending) || session.watchers.some(isPending);
    });
    const byKey = (a, b) => compare(a.agent, b.agent) || compare(rank(a), rank(b)) || compare(a.key, b.key);
    const orders = {
      key: byKey,
      latest: (a, b) => b.latest - a.latest || byKey(a, b),
      busy: (a, b) => b.total - a.total || byKey(a, b),
      pending: (a, b) => pendingOf(b).length - pendingOf(a).length || b.watchers.filter(isPending).length - a.watchers.filter(isPending).length || byKey(a, b),
    };
    lanes.sort(orders[state.order]);
    laneOf = new Int32Array(sessions.length).fill(-1);
    lanes.forEach((session, lane) => { laneOf[session.id] = lane; });
    setLanes();
    $('count').textContent = lanes.length === sessions.length ? plural(lanes.length, 'session') : `${lanes.length} of ${plural(sessions.length, 'session')}`;
    $('empty').hidden = lanes.length > 0;
    $('empty').textContent = sessions.length ? 'No session is like that.' : 'Nothing is logged yet.';
    overviewBins = null;
  }

  /** The lanes' height: few of them take more of the room. */
  function setLanes() {
    tall = Math.round(Math.min(Math.max(height / (lanes.length + 1), LOWEST), HIGHEST));
    document.documentElement.style.setProperty('--lane', `${tall}px`);
    $('spacer').style.height = `${lanes.length * tall}px`;
  }

  const isPending = (watch) => watch.since !== undefined;
  /** When that happened which a watcher has not seen. */
  function openedAt(watch) {
    watch.event ??= indexOf(watch.notified);
    return watch.event < 0 ? watch.since : at[watch.event];
  }
  // An agent's main session first, what it spawned last.
  const rank = ({ key }) => (/^agent:[^:]*:main$/.test(key) ? 0 : /^agent:[^:]*:subagent:/.test(key) ? 2 : 1);
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

  // ---- words ---------------------------------------------------------------

  const number = new Intl.NumberFormat('en');
  const plural = (n, word) => `${number.format(n)} ${word}${n === 1 ? '' : word.endsWith('ch') ? 'es' : 's'}`;
  const short = (n) => (n < 1000 ? String(n) : n < 10000 ? `${(n / 1000).toFixed(1)}k` : `${Math.round(n / 1000)}k`);
  const two = (n) => String(n).padStart(2, '0');
  const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
  const day = (date) => `${date.getDate()} ${MONTHS[date.getMonth()]}`;
  function stamp(ms) {
    const date = new Date(ms);
    return `${day(date)} ${date.getFullYear()}, ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, '0')}`;
  }
  function span(ms) {
    const units = [['d', 86400e3], ['h', 3600e3], ['min', 60e3], ['s', 1e3], ['ms', 1]];
    const largest = Math.max(0, units.findIndex(([, size]) => Math.abs(ms) >= size));
    const at0 = Math.abs(ms) < 1 ? 4 : largest;
    const [name, size] = units[at0];
    const whole = Math.floor(ms / size);
    const next = units[at0 + 1];
    const rest = next && at0 < 3 ? Math.floor((ms - whole * size) / next[1]) : 0;
    return rest ? `${whole} ${name} ${rest} ${next[0]}` : `${whole} ${name}`;
  }

  /** How long something has been so. */
  const age = (since) => (data.madeAt - since < 1e3 ? '< 1 s' : span(data.madeAt - since));

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
      else if (value !== undefined && value !== false) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }
  function icon(kind) {
    const made = $('icon').content.firstElementChild.cloneNode(true);
    made.classList.add(`k${kind}`);
    made.firstElementChild.setAttribute('href', `#s${kind}`);
    return made;
  }
  let saying = 0;
  function say(words) {
    clearTimeout(saying);
    saying = setTimeout(() => { $('live').textContent = words; }, 60);
  }

  // ---- drawing -------------------------------------------------------------

  const plot = $('plot'), axis = $('axis'), overview = $('overview'), scroller = $('scroller'), stage = $('stage');
  const ink = plot.getContext('2d'), axisInk = axis.getContext('2d'), overviewInk = overview.getContext('2d');
  let width = 0, height = 0, tall = LOWEST, overviewWidth = 0, ratio = 1, colours = {}, hatch = null, overviewBins = null;
  const FONT = '-apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif';
  const RING = `700 11px ${FONT}`;

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(`--${name}`).trim();
    colours = { kinds: KINDS.map((_, kind) => get(`k${kind}`)) };
    for (const name of ['page', 'surface', 'sunken', 'ink', 'soft', 'line', 'rule', 'accent', 'pending']) colours[name] = get(name);
    colours.accentWash = get('accent-wash');
    colours.pendingLine = get('pending-line');
    colours.pendingWash = get('pending-wash');
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const pen = tile.getContext('2d');
    pen.strokeStyle = colours.pendingLine;
    pen.lineWidth = 1.4;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) { pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); }
    pen.stroke();
    hatch = ink.createPattern(tile, 'repeat');
  }

  function resize() {
    ratio = Math.min(window.devicePixelRatio || 1, 3);
    const labels = $('lanes').offsetWidth;
    width = Math.max(scroller.clientWidth - labels, 60);
    left = width < 420 ? 30 : 52;
    height = stage.clientHeight;
    overviewWidth = overview.clientWidth;
    const fit = (canvas, pen, w, h) => {
      canvas.width = Math.round(w * ratio);
      canvas.height = Math.round(h * ratio);
      canvas.style.width = `${w}px`;
      canvas.style.height = `${h}px`;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    };
    fit(plot, ink, width, height);
    fit(axis, axisInk, width, 42);
    fit(overview, overviewInk, overviewWidth, 46);
    overviewBins = null;
    setLanes();
  }

  // Room at both ends, so that a mark at the edge is whole.
  let left = 52;
  const start = () => left + 14;
  const scale = () => (width - left - 30) / (view.to - view.from);
  const xOf = (time) => start() + (time - view.from) * scale();
  const timeAt = (x) => view.from + (x - start()) / scale();

  const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3,
    3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3, 172800e3, 432000e3, 604800e3, 1209600e3, 2592000e3, 7776000e3, 31536000e3];
  /** The times of the axis's lines: round ones by the local clock. */
  function ticks() {
    const room = (view.to - view.from) / Math.max(1, (width - left) / 104);
    const step = STEPS.find((size) => size >= room) ?? STEPS[STEPS.length - 1];
    const found = [];
    const shift = new Date(view.from).getTimezoneOffset() * 60e3;
    let time = Math.ceil((view.from - shift) / step) * step + shift;
    for (; time < view.to && found.length < 60; time += step) found.push(time);
    return { step, times: found };
  }
  function label(time, step) {
    const date = new Date(time);
    const midnight = date.getHours() + date.getMinutes() + date.getSeconds() + date.getMilliseconds() === 0;
    if (step >= 86400e3 || midnight) return day(date);
    const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
    if (step >= 60e3) return minutes;
    const seconds = `${minutes}:${two(date.getSeconds())}`;
    return step >= 1e3 ? seconds : `${seconds}.${String(date.getMilliseconds()).padStart(3, '0')}`;
  }

  const shapes = KINDS.map((_, kind) => {
    const path = new Path2D();
    const through = (...points) => { points.forEach(([x, y], n) => (n ? path.lineTo(x, y) : path.moveTo(x, y))); path.closePath(); };
    if (kind === 0) path.arc(0, 0, 4.8, 0, 7);
    if (kind === 1) { path.moveTo(-3.8, -3.8); path.lineTo(3.8, 3.8); path.moveTo(3.8, -3.8); path.lineTo(-3.8, 3.8); }
    if (kind === 2) through([0, -6], [6, 0], [0, 6], [-6, 0]);
    if (kind === 3) through([0, -5.4], [5.6, 4.6], [-5.6, 4.6]);
    if (kind === 4) path.rect(-4.4, -4.4, 8.8, 8.8);
    if (kind === 5) through([0, 5.4], [5.6, -4.6], [-5.6, -4.6]);
    if (kind === 6) path.rect(-5.6, -1.9, 11.2, 3.8);
    if (kind === 7) path.arc(0, 0, 4.1, 0, 7);
    return path;
  });
  function glyph(pen, kind, x, y, halo) {
    pen.save();
    pen.translate(x, y);
    pen.lineJoin = pen.lineCap = 'round';
    if (halo) { pen.strokeStyle = halo; pen.lineWidth = 5; pen.stroke(shapes[kind]); }
    if (kind === 1 || kind === 7) { pen.strokeStyle = colours.kinds[kind]; pen.lineWidth = 2.2; pen.stroke(shapes[kind]); }
    else { pen.fillStyle = colours.kinds[kind]; pen.fill(shapes[kind]); }
    pen.restore();
  }

  /** How wide a mark of so many events is, that reaches over so much. */
  const extent = (n, reach) => (n === 1 ? RADIUS * 2 : Math.max(reach + RADIUS * 2, 23 + short(n).length * 6.6));

  function lowerBound(list, time) {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (at[list[middle]] < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  /**
   * The marks of a session in the time shown: what would be nearer than APART to
   * its neighbour is one mark. A mark that grows may meet the one before it.
   */
  function marksOf(session) {
    const list = session.shown;
    const factor = scale(), begin = start();
    const reach = 40 / factor;
    const end = lowerBound(list, view.to + reach);
    const marks = [];
    for (let n = lowerBound(list, view.from - reach); n < end; n++) {
      const i = list[n];
      const x = begin + (at[i] - view.from) * factor;
      let mark = { from: n, to: n + 1, x0: x, x1: x, lead: kindOf[i], half: RADIUS };
      for (;;) {
        const before = marks[marks.length - 1];
        if (!before || (mark.x0 + mark.x1) / 2 - mark.half - (before.x0 + before.x1) / 2 - before.half >= APART) break;
        marks.pop();
        before.to = mark.to;
        before.x1 = mark.x1;
        if (WEIGHT[mark.lead] > WEIGHT[before.lead]) before.lead = mark.lead;
        before.half = extent(before.to - before.from, before.x1 - before.x0) / 2;
        mark = before;
      }
      marks.push(mark);
    }
    return marks;
  }

  let drawn = [];
  function draw() {
    const began = performance.now();
    const top = scroller.scrollTop;
    const from = Math.max(0, Math.floor(top / tall));
    const to = Math.min(lanes.length, Math.ceil((top + height) / tall));
    const yOf = (lane) => lane * tall - top + tall / 2;
    drawRows(from, to);
    ink.clearRect(0, 0, width, height);
    ink.fillStyle = colours.surface;
    ink.fillRect(0, 0, width, height);

    // Lanes and the lines of the axis.
    for (let lane = from; lane < to; lane++) {
      const y = yOf(lane);
      if (lanes[lane].id === state.session) {
        ink.fillStyle = colours.accentWash;
        ink.fillRect(0, y - tall / 2, width, tall);
      }
      ink.fillStyle = colours.rule;
      ink.fillRect(left, Math.round(y), width - left, 1);
    }
    const { step, times } = ticks();
    ink.fillStyle = colours.rule;
    for (const time of times) ink.fillRect(Math.round(xOf(time)), 0, 1, height);
    const now = xOf(data.madeAt);
    if (now > left && now < width) {
      ink.fillStyle = colours.soft;
      for (let y = 0; y < height; y += 6) ink.fillRect(Math.round(now), y, 1, 3);
    }

    // Since when a watcher has not looked: a hatched bar in its lane.
    for (let lane = from; lane < to; lane++) {
      const open = pendingOf(lanes[lane]);
      if (!open.length) continue;
      const x0 = Math.max(left, xOf(Math.min(...open.map(openedAt))));
      const x1 = Math.min(width, Math.max(now, x0 + 6));
      if (x0 > width || x1 < left) continue;
      ink.save();
      ink.beginPath();
      ink.roundRect(x0, yOf(lane) + 8, x1 - x0, 5, 2.5);
      ink.globalAlpha = 0.22;
      ink.fillStyle = colours.pendingLine;
      ink.fill();
      ink.globalAlpha = 1;
      ink.fillStyle = hatch;
      ink.fill();
      ink.restore();
    }

    drawWatches(from, to, yOf);
    const found = drawPending(from, to, yOf);

    // Marks.
    ink.save();
    ink.beginPath();
    ink.rect(left, 0, width - left, height);
    ink.clip();
    drawn = [];
    for (let lane = from; lane < to; lane++) {
      const session = lanes[lane];
      const marks = marksOf(session);
      const wash = session.id === state.session ? colours.accentWash : colours.surface;
      for (const mark of marks) {
        mark.lane = lane;
        mark.session = session;
        mark.x = (mark.x0 + mark.x1) / 2;
        if (mark.x + mark.half < left || mark.x - mark.half > width) continue;
        mark.y = yOf(lane);
        drawMark(mark, wash);
        drawn.push(mark);
      }
      if (drawn[drawn.length - 1]?.lane !== lane) pointAway(session, yOf(lane));
    }
    const rings = ringsOf(found);
    const names = drawn.length <= NAMED ? nameMarks(rings) : [];
    // What is open stands above the marks of its lanes.
    rings.forEach(ring);
    ink.restore();
    ink.fillStyle = colours.line;
    ink.fillRect(left - 1, 0, 1, height);

    drawAxis(step, times);
    drawOverview();
    const took = performance.now() - began;
    document.dispatchEvent(new CustomEvent('timeline:drawn', { detail: { took, marks: drawn, names, rings, lanes: to - from, tall, view: { ...view } } }));
  }

  /** Where the events of a lane are that has none in the time shown. */
  function pointAway(session, y) {
    const before = lowerBound(session.shown, view.from), after = session.shown.length - lowerBound(session.shown, view.to);
    ink.font = `11px ${FONT}`;
    ink.textBaseline = 'middle';
    ink.fillStyle = colours.soft;
    ink.textAlign = 'left';
    if (before) ink.fillText(`\u2039 ${short(before)}`, left + 8, y);
    ink.textAlign = 'right';
    if (after) ink.fillText(`${short(after)} \u203a`, width - 8, y);
  }

  /** What single events are, beside them, where there is room up to the next mark or ring; where the names are. */
  function nameMarks(rings) {
    ink.font = `11.5px ${FONT}`;
    ink.textAlign = 'left';
    ink.textBaseline = 'middle';
    ink.lineJoin = 'round';
    ink.lineWidth = 4;
    const names = [];
    drawn.forEach((mark, n) => {
      if (mark.to - mark.from > 1) return;
      const next = drawn[n + 1];
      const words = text[summary[mark.session.shown[mark.from]]];
      const x = mark.x + RADIUS + 8;
      const end = next && next.lane === mark.lane ? next.x - next.half - 8 : width - 8;
      const x1 = x + ink.measureText(words).width;
      if (x1 > end || rings.some((open) => open.y === mark.y && open.x + open.half > mark.x && open.x - open.half < x1 + 8)) return;
      ink.strokeStyle = mark.session.id === state.session ? colours.accentWash : colours.surface;
      ink.strokeText(words, x, mark.y);
      ink.fillStyle = mark.session.id === state.session ? colours.ink : colours.soft;
      ink.fillText(words, x, mark.y);
      names.push({ x0: x, x1, y: mark.y });
    });
    return names;
  }

  function drawMark(mark, wash) {
    const n = mark.to - mark.from;
    const chosen = state.marks && state.session === mark.session.id && state.marks.from < mark.to && state.marks.to > mark.from;
    const hovered = state.hover && state.hover.session === mark.session && state.hover.from === mark.from;
    if (n === 1) {
      if (chosen || hovered) {
        ink.beginPath();
        ink.arc(mark.x, mark.y, 10, 0, 7);
        ink.fillStyle = colours.surface;
        ink.fill();
        ink.strokeStyle = chosen ? colours.accent : colours.soft;
        ink.lineWidth = 2;
        ink.stroke();
      }
      glyph(ink, mark.lead, mark.x, mark.y, chosen || hovered ? null : wash);
      return;
    }
    // Several: a pill as long as what it stands for, with a count.
    const box = [mark.x - mark.half, mark.y - 10, mark.half * 2, 20];
    ink.beginPath();
    ink.roundRect(...box, 10);
    ink.fillStyle = colours.surface;
    ink.fill();
    const long = box[2] > 64;
    const x0 = Math.max(box[0], left - 20), x1 = Math.min(box[0] + box[2], width + 20);
    if (long) strip(mark, x0, x1);
    ink.beginPath();
    ink.roundRect(...box, 10);
    ink.strokeStyle = chosen ? colours.accent : hovered || long ? colours.soft : colours.kinds[mark.lead];
    ink.globalAlpha = long && !chosen && !hovered ? 0.55 : 1;
    ink.lineWidth = chosen || hovered ? 2 : 1.2;
    ink.stroke();
    ink.globalAlpha = 1;
    const label = short(n);
    ink.font = `600 11px ${FONT}`;
    ink.textAlign = 'left';
    ink.textBaseline = 'middle';
    if (long) {
      // The count stands at the end that is in sight.
      const room = ink.measureText(label).width + 14;
      const at0 = Math.min(Math.max(box[0] + 2, left + 3), box[0] + box[2] - room);
      ink.beginPath();
      ink.roundRect(at0, mark.y - 8, room, 16, 8);
      ink.fillStyle = colours.surface;
      ink.fill();
      ink.fillStyle = colours.ink;
      ink.fillText(label, at0 + 7, mark.y + 0.5);
      return;
    }
    const begin = mark.x - (17 + ink.measureText(label).width) / 2;
    glyph(ink, mark.lead, begin + 6, mark.y, null);
    ink.fillStyle = colours.ink;
    ink.fillText(label, begin + 16, mark.y + 0.5);
  }

  /** Within a long mark: how many of its events lie where. */
  function strip(mark, x0, x1) {
    const bins = Math.max(1, Math.ceil((x1 - x0) / 3));
    const heights = new Uint32Array(bins), of = new Uint32Array(bins * KINDS.length), y = new Float32Array(bins);
    const list = mark.session.shown;
    const factor = scale(), begin = start();
    let most = 1;
    for (let n = mark.from; n < mark.to; n++) {
      const bin = Math.floor((begin + (at[list[n]] - view.from) * factor - x0) / 3);
      if (bin < 0 || bin >= bins) continue;
      if (++heights[bin] > most) most = heights[bin];
      of[bin * KINDS.length + kindOf[list[n]]]++;
    }
    ink.save();
    ink.beginPath();
    ink.roundRect(mark.x - mark.half + 1, mark.y - 9, mark.half * 2 - 2, 18, 9);
    ink.clip();
    ink.globalAlpha = 0.8;
    for (let bin = 0; bin < bins; bin++) if (heights[bin]) y[bin] = 2 + 6 * Math.sqrt(heights[bin] / most);
    const high = y.map((half) => half * 2);
    // Stacked by kind, what matters most on top; a path a kind.
    for (const kind of BY_WEIGHT) {
      ink.fillStyle = colours.kinds[kind];
      ink.beginPath();
      for (let bin = 0; bin < bins; bin++) {
        const n = of[bin * KINDS.length + kind];
        if (!n) continue;
        const part = (high[bin] * n) / heights[bin];
        ink.rect(x0 + bin * 3 + 0.5, mark.y - y[bin], 2, part);
        y[bin] -= part;
      }
      ink.fill();
    }
    ink.restore();
  }

  /** Who watches whom: arcs beside the lanes, those of the chosen session strong. */
  function drawWatches(from, to, yOf) {
    ink.save();
    ink.beginPath();
    ink.rect(0, 0, left - 1, height);
    ink.clip();
    const faint = [], strong = [];
    for (const watch of data.watches) {
      const a = laneOf[watch.watcher], b = laneOf[watch.target];
      if (a < 0 || b < 0 || (a < from && b < from) || (a >= to && b >= to)) continue;
      const chosen = state.session === watch.watcher || state.session === watch.target;
      // One that passes by, with neither end in sight, tells nothing here.
      if (!chosen && Math.min(a, b) < from && Math.max(a, b) >= to) continue;
      (chosen || isPending(watch) ? strong : faint).push([watch, a, b, chosen]);
    }
    const alpha = Math.max(0.16, Math.min(0.75, 24 / (faint.length + 1)));
    const openAlpha = Math.max(0.22, Math.min(1, 12 / (strong.length + 1)));
    for (const [watch, a, b, chosen] of [...faint, ...strong]) {
      const y0 = yOf(a), y1 = yOf(b);
      const depth = Math.min(left - 8, 9 + 7 * Math.log2(1 + Math.abs(a - b)));
      const open = isPending(watch);
      // What leads out of sight is fainter: many of these would be one band.
      const near = Math.min(a, b) >= from && Math.max(a, b) < to ? 1 : 0.4;
      ink.globalAlpha = chosen ? 1 : near * (open ? openAlpha : state.session === null ? alpha : alpha * 0.5);
      ink.strokeStyle = ink.fillStyle = open ? colours.pendingLine : chosen ? colours.accent : colours.soft;
      ink.lineWidth = chosen ? 1.8 : open && strong.length < 24 ? 1.5 : 1.1;
      ink.setLineDash(watch.ambient ? [3, 3] : []);
      const edge = left - 5;
      ink.beginPath();
      ink.moveTo(edge, y0);
      ink.bezierCurveTo(edge - depth * 1.25, y0, edge - depth * 1.25, y1, edge, y1);
      ink.stroke();
      ink.setLineDash([]);
      // The arrow is at what is watched.
      ink.beginPath();
      ink.moveTo(edge + 2, y1);
      ink.lineTo(edge - 4, y1 - 3.2);
      ink.lineTo(edge - 4, y1 + 3.2);
      ink.fill();
      ink.beginPath();
      ink.arc(edge, y0, 2, 0, 7);
      ink.fill();
    }
    ink.restore();
  }

  /** From the change that opened a notice to the watcher that has not seen it. */
  function drawPending(from, to, yOf) {
    const found = [];
    const alpha = Math.max(0.25, Math.min(0.9, 40 / (pending.length + 1)));
    for (const watch of pending) {
      const a = laneOf[watch.watcher], b = laneOf[watch.target];
      if (a < 0 || b < 0 || (a < from && b < from) || (a >= to && b >= to)) continue;
      const x = xOf(openedAt(watch));
      if (x < left - 4 || x > width + 4) continue;
      const chosen = state.session === watch.watcher || state.session === watch.target;
      const y0 = yOf(b), y1 = yOf(a);
      ink.globalAlpha = chosen ? 1 : alpha;
      ink.strokeStyle = colours.pendingLine;
      ink.lineWidth = chosen ? 2 : 1.4;
      ink.setLineDash([4, 3]);
      ink.beginPath();
      ink.moveTo(x, y0);
      ink.lineTo(x, y1);
      ink.stroke();
      ink.setLineDash([]);
      ink.globalAlpha = 1;
      if (a >= from && a < to) found.push({ x, y: y1 });
    }
    return found;
  }

  /** The rings where notices opened; those that would touch are one, with a count. */
  function ringsOf(found) {
    found.sort((a, b) => a.y - b.y || a.x - b.x);
    const rings = [];
    for (const { x, y } of found) {
      const before = rings[rings.length - 1];
      if (before && before.y === y && x - before.x1 < RADIUS * 2 + APART) {
        before.x1 = x;
        before.n++;
      } else rings.push({ x0: x, x1: x, y, n: 1 });
    }
    ink.font = RING;
    return rings.map(({ x0, x1, y, n }) => {
      const words = n === 1 ? '' : short(n);
      const half = n === 1 ? 5 : Math.max((x1 - x0) / 2 + 6, ink.measureText(words).width / 2 + 7);
      return { x: (x0 + x1) / 2, y, half, n, words };
    });
  }

  function ring({ x, y, half, n, words }) {
    const high = n === 1 ? 5 : 9;
    ink.beginPath();
    ink.roundRect(x - half, y - high, half * 2, high * 2, high);
    ink.fillStyle = colours.pendingWash;
    ink.fill();
    ink.strokeStyle = colours.pendingLine;
    ink.lineWidth = n === 1 ? 2.6 : 2;
    ink.stroke();
    ink.font = RING;
    ink.textAlign = 'center';
    ink.textBaseline = 'middle';
    ink.fillStyle = colours.pending;
    ink.fillText(words, x, y + 0.5);
  }

  function drawAxis(step, times) {
    axisInk.clearRect(0, 0, width, 42);
    axisInk.font = `11.5px ${FONT}`;
    axisInk.textBaseline = 'middle';
    axisInk.textAlign = 'center';
    let before = -Infinity;
    for (const time of times) {
      const x = xOf(time), words = label(time, step);
      const half = axisInk.measureText(words).width / 2;
      axisInk.fillStyle = colours.line;
      axisInk.fillRect(Math.round(x), 36, 1, 6);
      if (x - half < Math.max(before + 12, left - 20) || x + half > width - 4) continue;
      axisInk.fillStyle = /:/.test(words) ? colours.soft : colours.ink;
      axisInk.fillText(words, x, 26);
      before = x + half;
    }
    // The day at the left end, where the lines say hours alone.
    axisInk.textAlign = 'left';
    axisInk.fillStyle = colours.ink;
    axisInk.font = `600 11px ${FONT}`;
    const date = new Date(view.from);
    axisInk.fillText(step < 86400e3 ? `${day(date)} ${date.getFullYear()}` : String(date.getFullYear()), left, 11);
    axisInk.fillStyle = colours.soft;
    axisInk.font = `11px ${FONT}`;
    axisInk.textAlign = 'right';
    axisInk.fillText(`${span(view.to - view.from)} shown`, width - 10, 11);
  }

  function drawOverview() {
    const pen = overviewInk, w = overviewWidth, h = 46;
    const bins = Math.max(1, Math.floor((w - 24) / 3));
    const x = (time) => 12 + ((time - all.from) / (all.to - all.from)) * (w - 24);
    if (!overviewBins || overviewBins.length !== bins) {
      overviewBins = new Uint32Array(bins);
      for (const session of lanes) {
        for (const i of session.shown) overviewBins[Math.min(bins - 1, Math.floor(((at[i] - all.from) / (all.to - all.from)) * bins))]++;
      }
    }
    let most = 1;
    for (const n of overviewBins) if (n > most) most = n;
    pen.clearRect(0, 0, w, h);
    const x0 = Math.max(6, x(view.from)), x1 = Math.min(w - 6, Math.max(x(view.to), x0 + 4));
    for (let bin = 0; bin < bins; bin++) {
      if (!overviewBins[bin]) continue;
      const high = 3 + 29 * Math.sqrt(overviewBins[bin] / most);
      const at0 = 12 + bin * 3;
      pen.globalAlpha = at0 >= x0 - 2 && at0 <= x1 ? 0.9 : 0.35;
      pen.fillStyle = colours.accent;
      pen.fillRect(at0, h - 7 - high, 2, high);
    }
    pen.globalAlpha = 1;
    pen.beginPath();
    pen.roundRect(x0, 4.5, x1 - x0, h - 9, 6);
    pen.strokeStyle = colours.accent;
    pen.lineWidth = 1.5;
    pen.stroke();
    pen.globalAlpha = 0.08;
    pen.fillStyle = colours.accent;
    pen.fill();
    pen.globalAlpha = 1;
  }

  let frame = 0;
  function redraw() {
    if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); });
  }

  // ---- rows: the lanes' names, those in sight alone --------------------------

  const rows = new Map();
  function drawRows(from, to) {
    const grid = $('lanes');
    grid.setAttribute('aria-rowcount', lanes.length);
    const keep = new Set();
    for (let lane = Math.max(0, from - 3); lane < Math.min(lanes.length, to + 3); lane++) keep.add(lanes[lane].id);
    // The one with the focus stays, or the focus would be lost.
    if (state.session !== null && laneOf[state.session] >= 0) keep.add(state.session);
    for (const [id, row] of rows) if (!keep.has(id)) { row.remove(); rows.delete(id); }
    const tabbable = state.session !== null && laneOf[state.session] >= 0 ? state.session : lanes[from]?.id;
    for (const id of keep) {
      let row = rows.get(id);
      if (!row) {
        row = makeRow(sessions[id]);
        rows.set(id, row);
        grid.append(row);
      }
      row.style.top = `${laneOf[id] * tall}px`;
      row.setAttribute('aria-rowindex', laneOf[id] + 1);
      row.setAttribute('aria-selected', id === state.session);
      row.tabIndex = id === tabbable ? 0 : -1;
    }
  }
  function makeRow(session) {
    const open = pendingOf(session).length;
    const key = element('span', { class: 'key', role: 'rowheader', title: session.key });
    const path = session.short.split(':');
    if (path.length > 1) key.append(element('small', {}, `${path.slice(0, -1).join(':')}:`));
    key.append(element('span', {}, path[path.length - 1]));
    const row = element('div', { class: 'lane', role: 'row' }, key);
    if (open) row.append(element('span', { class: 'badge', role: 'gridcell', 'aria-label': `${plural(open, 'pending notice')}` }, element('span', { class: 'bell', 'aria-hidden': 'true' }), String(open)));
    row.append(element('span', { class: 'events', role: 'gridcell', 'aria-label': plural(session.total, 'event') }, short(session.total)));
    row.dataset.session = session.id;
    return row;
  }

  // ---- details ---------------------------------------------------------------

  const kindName = (i) => KINDS[kindOf[i]];
  function go(id) {
    return element('button', { type: 'button', class: 'link', onclick: () => { choose(id, null); reveal(id); rows.get(id)?.focus(); } }, ...breakable(sessions[id].key));
  }
  /** A key that breaks between its parts rather than within them. */
  const breakable = (key) => key.split(/(?<=:)/).flatMap((part, n) => (n ? [element('wbr'), part] : [part]));
  function pairs(...list) {
    const made = element('dl', { class: 'pairs' });
    for (const [name, value] of list) if (value) made.append(element('dt', {}, name), element('dd', {}, value));
    return made;
  }
  function watchItem(watch, other) {
    const words = isPending(watch)
      ? element('span', { class: 'pend' }, `pending for ${age(watch.since)}`)
      : 'in sync';
    return element('li', {}, element('span', { class: 'grow' }, go(other)), element('span', { class: 'aside' }, words, watch.ambient ? ', ambient' : ''));
  }
  function list(title, items, most = 60) {
    if (!items.length) return [];
    const made = element('ul', {}, ...items.slice(0, most));
    if (items.length > most) made.append(element('li', {}, element('span', { class: 'aside' }, `and ${number.format(items.length - most)} more`)));
    return [element('h4', {}, title), made];
  }
  function composition(counts) {
    const total = counts.reduce((sum, n) => sum + n, 0);
    const bar = element('div', { class: 'bar', 'aria-hidden': 'true' });
    const items = [];
    counts.forEach((n, kind) => {
      if (!n) return;
      const part = element('i', { class: `k${kind}` });
      part.style.flexGrow = n / total;
      bar.append(part);
      items.push(element('li', {}, icon(kind), element('span', { class: 'grow' }, KINDS[kind]), element('span', { class: 'aside' }, number.format(n))));
    });
    return total ? [bar, element('ul', {}, ...items)] : [];
  }

  function showDetails() {
    const panel = $('details');
    panel.replaceChildren();
    if (state.session === null) {
      panel.append(element('h3', {}, 'Nothing chosen'), element('p', { class: 'lead' }, 'Choose a session or a mark: by a click, or with the arrow keys.'));
      const open = [...pending].sort((a, b) => a.since - b.since);
      panel.append(...list(`Pending, the oldest first`, open.map((watch) => element('li', {},
        element('span', { class: 'grow' }, go(watch.watcher), ' has not seen ', go(watch.target)),
        element('span', { class: 'aside pend' }, age(watch.since))))));
      if (count) panel.append(element('h4', {}, 'Events'), ...composition(kindTotals));
      return;
    }
    const session = sessions[state.session];
    if (state.marks) {
      const events = [...session.shown.subarray(state.marks.from, state.marks.to)];
      if (events.length === 1) {
        const i = events[0];
        panel.append(element('h3', {}, text[summary[i]]), element('p', { class: 'lead' }, `${kindName(i)} · ${stamp(at[i])}`));
        panel.append(pairs(['Session', go(session.id)], ['By', text[by[i]]], ['Sequence', number.format(sequence[i])], ['Run', text[run[i]]]));
        const told = session.watchers.filter((watch) => isPending(watch) && sequence[i] > watch.lastSeen && sequence[i] <= watch.material);
        if (told.length) panel.append(element('p', { class: 'note' }, `Not yet seen by ${told.map((watch) => sessions[watch.watcher].key).join(', ')}`));
      } else {
        const counts = KINDS.map(() => 0);
        for (const i of events) counts[kindOf[i]]++;
        panel.append(element('h3', {}, plural(events.length, 'event')), element('p', { class: 'lead' }, `${stamp(at[events[0]])}, over ${span(at[events[events.length - 1]] - at[events[0]])}`));
        panel.append(pairs(['Session', go(session.id)]), ...composition(counts));
        panel.append(...list('In order', events.map((i) => element('li', {}, icon(kindOf[i]), element('span', { class: 'grow' }, text[summary[i]]), element('span', { class: 'aside' }, stamp(at[i]).split(', ')[1].slice(0, 8)))), 100));
      }
      const step = (by, words) => element('button', { type: 'button', onclick: () => stepEvent(by) }, words);
      const zoom = events.length > 1 ? element('button', { type: 'button', onclick: () => zoomTo(at[events[0]], at[events[events.length - 1]]) }, 'Zoom to it') : null;
      panel.append(element('div', { class: 'steps' }, step(-1, 'Earlier'), step(1, 'Later'), zoom));
      return;
    }
    panel.append(element('h3', { class: 'long' }, ...breakable(session.key)));
    panel.append(pairs(['Agent', session.agent], ['Version', number.format(session.stateVersion)], ['Events', number.format(session.total)],
      ['Latest', session.total ? stamp(session.latest) : ''], ['Pruned', session.prunedBelow ? `up to ${number.format(session.prunedBelow)}` : '']));
    panel.append(...composition([...session.kinds]));
    const firstOpen = (a, b) => (b.since !== undefined) - (a.since !== undefined);
    panel.append(...list('Watches', [...session.watches].sort(firstOpen).map((watch) => watchItem(watch, watch.target))));
    panel.append(...list('Watched by', [...session.watchers].sort(firstOpen).map((watch) => watchItem(watch, watch.watcher))));
  }

  // ---- choosing and moving -----------------------------------------------------

  function choose(id, marks) {
    state.session = id;
    state.marks = marks;
    showDetails();
    if (state.table) showTable();
    redraw();
    if (id === null) return;
    const session = sessions[id];
    if (marks && marks.to - marks.from === 1) {
      const i = session.shown[marks.from];
      say(`${kindName(i)}, ${stamp(at[i])}. ${text[summary[i]]}. Event ${marks.from + 1} of ${session.shown.length}`);
    } else if (marks) {
      say(`${plural(marks.to - marks.from, 'event')} of ${session.key}`);
    } else {
      const open = pendingOf(session).length;
      say(`${session.key}, ${plural(session.total, 'event')}${open ? `, ${plural(open, 'pending notice')}` : ''}`);
    }
  }

  /** Scrolls a session's lane into sight. */
  function reveal(id) {
    const lane = laneOf[id];
    if (lane < 0) return;
    const y = lane * tall;
    if (y < scroller.scrollTop + tall) scroller.scrollTop = Math.max(0, y - tall * 2);
    else if (y + tall > scroller.scrollTop + height - tall) scroller.scrollTop = y - height + tall * 3;
    draw();
  }

  function look(from, to) {
    const most = (all.to - all.from) * 1.5;
    let length = Math.min(Math.max(to - from, SHORTEST), most);
    const middle = (from + to) / 2;
    from = middle - length / 2;
    // Some of what there is stays in sight.
    from = Math.min(Math.max(from, all.from - length * 0.8), all.to - length * 0.2);
    view.from = from;
    view.to = from + length;
    state.page = 0;
    if (state.table) showTable();
    redraw();
  }
  /** Where a zoom that has no place of its own goes: to the chosen event, if it is in sight. */
  function centre() {
    const chosen = state.marks && at[sessions[state.session].shown[state.marks.from]];
    return chosen >= view.from && chosen <= view.to ? xOf(chosen) : left + (width - left) / 2;
  }
  function zoom(factor, x = centre()) {
    const time = timeAt(x), share = (time - view.from) / (view.to - view.from);
    const length = Math.min(Math.max((view.to - view.from) * factor, SHORTEST), (all.to - all.from) * 1.5);
    look(time - share * length, time + (1 - share) * length);
  }
  function zoomTo(from, to) {
    const room = Math.max((to - from) * 0.15, 400);
    look(from - room, to + room);
  }
  const pan = (share) => look(view.from + (view.to - view.from) * share, view.to + (view.to - view.from) * share);
  function tellView() { say(`${stamp(view.from)} to ${stamp(view.to)}`); }

  function stepEvent(by) {
    const session = sessions[state.session ?? lanes[0]?.id];
    if (!session) return;
    if (!session.shown.length) return say('No event');
    let n;
    if (state.session === session.id && state.marks) n = by > 0 ? state.marks.to : state.marks.from - 1;
    else n = by > 0 ? lowerBound(session.shown, view.from) : lowerBound(session.shown, view.to) - 1;
    n = Math.min(Math.max(n, 0), session.shown.length - 1);
    const time = at[session.shown[n]];
    if (time < view.from || time > view.to) {
      const length = view.to - view.from;
      look(time - length / 2, time + length / 2);
    }
    choose(session.id, { from: n, to: n + 1 });
    reveal(session.id);
  }

  function chooseLane(lane) {
    if (!lanes.length) return;
    const session = lanes[Math.min(Math.max(lane, 0), lanes.length - 1)];
    choose(session.id, null);
    reveal(session.id);
    rows.get(session.id)?.focus({ preventScroll: true });
  }

  function fit() { look(all.from, all.to); }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inGrid = $('lanes').contains(event.target) || event.target === document.body;
    const lane = state.session === null ? -1 : laneOf[state.session];
    const sight = Math.max(1, Math.floor(height / tall) - 1);
    const actions = {
      '+': () => { zoom(0.6); tellView(); }, '=': () => { zoom(0.6); tellView(); }, '-': () => { zoom(1 / 0.6); tellView(); },
      0: () => { fit(); tellView(); },
      ',': () => stepEvent(-1), '.': () => stepEvent(1),
      '?': () => $('help').showModal(),
      t: () => showAs(!state.table), T: () => showAs(!state.table),
      Escape: () => { if (state.marks) choose(state.session, null); else choose(null, null); },
    };
    if (inGrid) Object.assign(actions, {
      ArrowLeft: () => { pan(-0.15); tellView(); }, ArrowRight: () => { pan(0.15); tellView(); },
      ArrowUp: () => chooseLane(lane - 1), ArrowDown: () => chooseLane(lane + 1),
      PageUp: () => chooseLane(lane - sight), PageDown: () => chooseLane(lane + sight),
      Home: () => { const length = view.to - view.from; look(all.from, all.from + length); tellView(); },
      End: () => { const length = view.to - view.from; look(all.to - length, all.to); tellView(); },
      Enter: () => $('details').focus(),
    });
    if (event.target.closest('input, select, dialog')) return;
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  // ---- the pointer -----------------------------------------------------------

  const pointers = new Map();
  let moved = 0, grip = null;
  function markAt(x, y) {
    for (let n = drawn.length - 1; n >= 0; n--) {
      const mark = drawn[n];
      if (Math.abs(y - mark.y) <= tall / 2 && Math.abs(x - mark.x) <= Math.max(mark.half, 8)) return mark;
    }
    return null;
  }
  function tip(mark, event) {
    const box = $('tip');
    box.hidden = !mark;
    plot.classList.toggle('over', Boolean(mark));
    if (!mark) return;
    const events = mark.session.shown.subarray(mark.from, mark.to);
    box.replaceChildren();
    if (events.length === 1) {
      const i = events[0];
      box.append(element('b', {}, text[summary[i]]), element('span', {}, `${kindName(i)} · ${stamp(at[i])}`), element('span', {}, `by ${text[by[i]]} · #${sequence[i]}`));
    } else {
      const counts = new Uint32Array(KINDS.length);
      for (const i of events) counts[kindOf[i]]++;
      box.append(element('b', {}, plural(events.length, 'event')), element('span', {}, KINDS.map((name, kind) => (counts[kind] ? `${number.format(counts[kind])} × ${name}` : '')).filter(Boolean).join(', ')),
        element('span', {}, `${stamp(at[events[0]])}, over ${span(at[events[events.length - 1]] - at[events[0]])}`));
    }
    const { offsetWidth: w, offsetHeight: h } = box;
    const x = Math.min(event.clientX + 14, window.innerWidth - w - 8);
    const y = event.clientY + h + 24 > window.innerHeight ? event.clientY - h - 12 : event.clientY + 18;
    box.style.transform = `translate(${Math.max(8, x)}px, ${Math.max(8, y)}px)`;
  }
  const place = (event) => { const box = plot.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };

  plot.addEventListener('wheel', (event) => {
    if (event.shiftKey) return;
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const dx = event.deltaX * unit, dy = event.deltaY * unit;
    if (Math.abs(dx) > Math.abs(dy)) pan(dx / (width - left));
    else zoom(Math.exp(Math.max(-120, Math.min(120, dy)) * (event.ctrlKey ? 0.012 : 0.0028)), place(event)[0]);
    tip(null);
  }, { passive: false });
  plot.addEventListener('pointerdown', (event) => {
    if (event.button > 0) return;
    plot.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    if (pointers.size === 1) moved = 0;
    grip = { view: { ...view }, top: scroller.scrollTop, at: new Map([...pointers]) };
  });
  plot.addEventListener('pointermove', (event) => {
    const here = place(event);
    if (!pointers.has(event.pointerId)) {
      const mark = markAt(...here);
      if (mark?.from !== state.hover?.from || mark?.session !== state.hover?.session) { state.hover = mark; redraw(); }
      return tip(mark, event);
    }
    pointers.set(event.pointerId, here);
    const [id, ...others] = [...pointers.keys()];
    const held0 = grip.at.get(id), now = pointers.get(id);
    moved = Math.max(moved, Math.hypot(now[0] - held0[0], now[1] - held0[1]));
    const shown = width - left - 30, length = grip.view.to - grip.view.from;
    if (others.length) {
      // Two fingers: the times under them stay under them.
      const [a0, b0] = [held0[0], grip.at.get(others[0])[0]], [a1, b1] = [now[0], pointers.get(others[0])[0]];
      moved = 99;
      const stretch = Math.max(Math.abs(b1 - a1), 12) / Math.max(Math.abs(b0 - a0), 12);
      const middle = grip.view.from + (((a0 + b0) / 2 - start()) / shown) * length;
      const share = ((a1 + b1) / 2 - start()) / shown;
      look(middle - share * (length / stretch), middle + (1 - share) * (length / stretch));
    } else if (moved > 4) {
      plot.classList.add('dragging');
      tip(null);
      const shift = ((now[0] - held0[0]) / shown) * length;
      look(grip.view.from - shift, grip.view.to - shift);
      scroller.scrollTop = grip.top - (now[1] - held0[1]);
    }
  });
  function release(event) {
    if (!pointers.delete(event.pointerId)) return;
    plot.classList.remove('dragging');
    grip = { view: { ...view }, top: scroller.scrollTop, at: new Map([...pointers]) };
    if (event.type === 'pointercancel' || moved > 4 || pointers.size) return;
    const [x, y] = place(event);
    const mark = markAt(x, y);
    const session = mark ? mark.session : lanes[Math.floor((y + scroller.scrollTop) / tall)];
    if (session) choose(session.id, mark ? { from: mark.from, to: mark.to } : null);
    else choose(null, null);
  }
  plot.addEventListener('pointerup', release);
  plot.addEventListener('pointercancel', release);
  plot.addEventListener('pointerleave', () => { tip(null); if (state.hover) { state.hover = null; redraw(); } });
  plot.addEventListener('dblclick', (event) => zoom(0.4, place(event)[0]));

  const overviewTime = (event) => {
    const box = overview.getBoundingClientRect();
    return all.from + ((event.clientX - box.left - 12) / (box.width - 24)) * (all.to - all.from);
  };
  let held = null;
  overview.addEventListener('pointerdown', (event) => {
    overview.setPointerCapture(event.pointerId);
    const time = overviewTime(event), length = view.to - view.from;
    held = time > view.from && time < view.to ? time - view.from : length / 2;
    look(time - held, time - held + length);
  });
  overview.addEventListener('pointermove', (event) => {
    if (held === null) return;
    const time = overviewTime(event), length = view.to - view.from;
    look(time - held, time - held + length);
  });
  for (const name of ['pointerup', 'pointercancel']) overview.addEventListener(name, () => { held = null; });
  overview.addEventListener('wheel', (event) => { event.preventDefault(); zoom(Math.exp(event.deltaY * 0.0028)); }, { passive: false });

  $('lanes').addEventListener('click', (event) => {
    const row = event.target.closest('.lane');
    if (row) { choose(Number(row.dataset.session), null); draw(); row.focus({ preventScroll: true }); }
  });
  $('lanes').addEventListener('focusin', (event) => {
    const row = event.target.closest('.lane');
    if (row && state.session !== Number(row.dataset.session)) choose(Number(row.dataset.session), null);
  });

  // ---- the table ---------------------------------------------------------------

  function showAs(table) {
    state.table = table;
    $('table').hidden = !table;
    $('chart').hidden = table;
    $('as-chart').setAttribute('aria-pressed', !table);
    $('as-table').setAttribute('aria-pressed', table);
    if (table) showTable(); else { resize(); draw(); }
  }
  function tableEvents() {
    const chosen = state.session === null ? lanes : [sessions[state.session]];
    const found = [];
    for (const session of chosen) {
      const end = lowerBound(session.shown, view.to);
      for (let n = lowerBound(session.shown, view.from); n < end; n++) found.push(session.shown[n]);
    }
    return found.sort((a, b) => at[a] - at[b] || a - b);
  }
  function showTable() {
    const found = tableEvents();
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    const from = state.page * PAGE, page = found.slice(from, from + PAGE);
    const whose = state.session === null ? plural(lanes.length, 'session') : sessions[state.session].key;
    $('table-about').textContent = found.length
      ? `${number.format(from + 1)} to ${number.format(from + page.length)} of ${plural(found.length, 'event')} of ${whose}, ${stamp(view.from)} to ${stamp(view.to)}`
      : `No event of ${whose} from ${stamp(view.from)} to ${stamp(view.to)}`;
    $('page-back').disabled = state.page === 0;
    $('page-on').disabled = state.page >= pages - 1;
    $('rows').replaceChildren(...page.map((i) => element('tr', {},
      element('td', { class: 'num' }, String(sequence[i])), element('td', { class: 'time' }, stamp(at[i])), element('td', { class: 'mono' }, sessions[ofSession[i]].key),
      element('td', { class: 'kind' }, icon(kindOf[i]), kindName(i)), element('td', {}, text[by[i]]), element('td', {}, text[summary[i]]))));
    const watches = data.watches.filter((watch) => (state.session === null ? laneOf[watch.watcher] >= 0 || laneOf[watch.target] >= 0 : watch.watcher === state.session || watch.target === state.session))
      .sort((a, b) => isPending(b) - isPending(a)).slice(0, 1000);
    $('watch-rows').replaceChildren(...watches.map((watch) => element('tr', {},
      element('td', { class: 'mono' }, sessions[watch.watcher].key), element('td', { class: 'mono' }, sessions[watch.target].key),
      element('td', isPending(watch) ? { class: 'pend' } : {}, isPending(watch) ? `pending for ${age(watch.since)}` : 'in sync'),
      element('td', { class: 'num' }, String(watch.lastSeen)), element('td', { class: 'num' }, String(watch.material)))));
  }

  // ---- controls ------------------------------------------------------------------

  const system = matchMedia('(prefers-color-scheme: dark)');
  const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? 'dark' : 'light')) === 'dark';
  function themed() {
    $('theme').setAttribute('aria-pressed', isDark());
    readColours();
    redraw();
  }
  $('theme').addEventListener('click', () => { document.documentElement.dataset.theme = isDark() ? 'light' : 'dark'; themed(); });
  system.addEventListener('change', themed);
  $('help-open').addEventListener('click', () => $('help').showModal());
  $('zoom-in').addEventListener('click', () => { zoom(0.6); tellView(); });
  $('zoom-out').addEventListener('click', () => { zoom(1 / 0.6); tellView(); });
  $('fit').addEventListener('click', () => { fit(); tellView(); });
  $('as-chart').addEventListener('click', () => showAs(false));
  $('as-table').addEventListener('click', () => showAs(true));
  $('page-back').addEventListener('click', () => { state.page--; showTable(); });
  $('page-on').addEventListener('click', () => { state.page++; showTable(); });
  function relane() {
    chooseLanes();
    scroller.scrollTop = 0;
    if (state.table) showTable();
    redraw();
    say(`${plural(lanes.length, 'session')} shown`);
  }
  $('find').addEventListener('input', (event) => { state.find = event.target.value; relane(); });
  $('order').addEventListener('change', (event) => { state.order = event.target.value; relane(); });
  $('only-pending').addEventListener('click', (event) => {
    state.onlyPending = !state.onlyPending;
    event.currentTarget.setAttribute('aria-pressed', state.onlyPending);
    relane();
  });
  KINDS.forEach((name, kind) => {
    if (!kindTotals[kind]) return;
    const button = element('button', { type: 'button', 'aria-pressed': 'true' }, icon(kind), name, element('span', { class: 'n' }, short(kindTotals[kind])));
    button.addEventListener('click', () => {
      shownKinds[kind] = !shownKinds[kind];
      button.setAttribute('aria-pressed', shownKinds[kind]);
      state.marks = null;
      overviewBins = null;
      chooseKinds();
      showDetails();
      if (state.table) showTable();
      redraw();
    });
    $('legend').append(button);
  });
  for (const [sign, name, is] of [
    ['bell', 'Pending', pending.length], ['arc', 'Watch', data.watches.length],
  ]) if (is) $('legend').append(element('span', { class: 'sign' }, element('i', { class: sign, 'aria-hidden': 'true' }), name));
  document.addEventListener('keydown', keys);
  scroller.addEventListener('scroll', redraw, { passive: true });
  new ResizeObserver(() => { if (!state.table) { resize(); draw(); } }).observe(stage);

  // ---- begin -----------------------------------------------------------------------

  $('title').textContent = data.title;
  $('database').textContent = data.database;
  $('made').textContent = `as of ${stamp(data.madeAt).slice(0, -4)} (${Intl.DateTimeFormat().resolvedOptions().timeZone})`;
  for (const [name, value, hot] of [
    ['sessions', number.format(sessions.length)], ['events', number.format(count)], ['watches', number.format(data.watches.length)],
    ['pending', number.format(pending.length), pending.length > 0], ['time span', count ? span(Math.max(0, last - first)) : 'none'],
  ]) $('facts').append(element('div', hot ? { class: 'hot' } : {}, element('dt', {}, name), element('dd', {}, value)));
  chooseKinds();
  chooseLanes();
  readColours();
  resize();
  draw();
  themed();
  showDetails();
  performance.mark('timeline:ready');
})();
