// Looks at the pages in a browser, as a person with a mouse, with a keyboard,
// with a screen reader. Arguments: the folder of the pages, the browser, and
// where pictures go.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const [folder, executablePath, pictures] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
// The page promises 2 s and 100 ms; a busy machine is given three times that.
const OPENS_MS = 2_000 * 3;
const ZOOMS_MS = 100 * 3;
const HOSTILE = '</script><img src=x onerror="document.title=\'owned\'">\\u{202e}gnp';

const browser = await chromium.launch({
  executablePath,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});

/** Opens a page; what it fetches, and what goes wrong in it, is a failure. */
async function open(name, { scheme = 'light', width = 1440, height = 900, touch = false } = {}) {
  const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height }, hasTouch: touch, timezoneId: 'UTC' });
  const page = await context.newPage();
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && wrong.push(message.text()));
  page.on('request', (request) => request.url().startsWith('file://') || wrong.push(`fetched ${request.url()}`));
  await page.addInitScript(() => {
    window.frames_ = [];
    document.addEventListener('timeline:drawn', ({ detail }) => {
      window.drawn_ = detail;
      window.frames_.push([performance.now(), detail.took]);
    });
  });
  await page.goto(`file://${join(folder, name)}.html`);
  await page.waitForFunction(() => performance.getEntriesByName('timeline:ready').length > 0);
  await settled(page);
  return { page, wrong, done: async () => { assert.deepEqual(wrong, [], name); await context.close(); } };
}

/** Two frames later everything that was asked for is drawn. */
const settled = (page) => page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
const shown = (page) => page.evaluate(() => ({
  lanes: window.drawn_.lanes,
  tall: window.drawn_.tall,
  span: window.drawn_.view.to - window.drawn_.view.from,
  marks: window.drawn_.marks.map(({ lane, x0, x1, x, half, from, to }) => ({ lane, x0, x1, x, half, count: to - from })),
}));
const live = async (page, pattern) => {
  await page.waitForFunction((source) => new RegExp(source).test(document.getElementById('live').textContent), pattern.source);
};
const picture = async (page, name) => {
  const png = await page.screenshot({ path: join(pictures, `${name}.png`) });
  assert.ok(png.length > 12_000, `${name}: an empty picture`);
};

async function accessible(page, what) {
  // The page's own policy lets no script in: axe comes by the debugger.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const grave = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  assert.deepEqual(grave.map(({ id, nodes }) => [id, nodes.slice(0, 3).map((node) => node.html.slice(0, 160))]), [], what);
}

/** How many pixels of the plot are of the colour of a property of the style. */
const pixels = (page, property) => page.evaluate((name) => {
  const probe = document.createElement('canvas').getContext('2d');
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
  const plot = document.getElementById('plot');
  const { data } = plot.getContext('2d').getImageData(0, 0, plot.width, plot.height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4) if (Math.abs(data[at] - r) + Math.abs(data[at + 1] - g) + Math.abs(data[at + 2] - b) < 12) found++;
  return found;
}, property);

function apart({ marks }) {
  const byLane = Map.groupBy ? Map.groupBy(marks, (mark) => mark.lane) : marks.reduce((map, mark) => map.set(mark.lane, [...(map.get(mark.lane) ?? []), mark]), new Map());
  for (const lane of byLane.values()) {
    for (let n = 1; n < lane.length; n++) {
      const gap = lane[n].x - lane[n].half - lane[n - 1].x - lane[n - 1].half;
      assert.ok(gap >= 3 - 1e-6 && lane[n].x0 - lane[n - 1].x1 >= 3, `marks ${gap} px apart`);
    }
  }
}

// ---- a gateway's afternoon ----
{
  const { page, wrong, done } = await open('small');
  assert.equal(await page.title(), 'Session timeline');
  const rows = page.locator('.lane');
  assert.equal(await rows.count(), 9);

  // A key that would become an element stays a text, wherever it is shown.
  const hostile = page.locator('.lane', { hasText: '</script><img' });
  assert.equal(await hostile.locator('.key').getAttribute('title'), HOSTILE);
  await hostile.click();
  assert.equal(await page.locator('#details h3').textContent(), HOSTILE);
  assert.equal(await page.locator('img').count(), 0);
  await page.locator('.lane', { hasText: 'global' }).click();
  await page.locator('#as-table').click();
  assert.equal(await page.locator('#rows td', { hasText: "<script>document.title='owned'</script>" }).count(), 1);
  await page.locator('#as-chart').click();
  assert.equal(await page.title(), 'Session timeline');
  // And what did get in would not run.
  const ran = await page.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = 'window.ran_ = true';
    document.body.append(script);
    return Boolean(window.ran_);
  });
  assert.equal(ran, false, 'the policy lets foreign scripts run');
  assert.match(wrong.splice(0).join(), /^Executing inline script violates/);
  await page.keyboard.press('Escape');

  // Every event is in one mark, and marks keep apart.
  await page.mouse.move(2, 2);
  await settled(page);
  let frame = await shown(page);
  assert.equal(frame.marks.reduce((sum, mark) => sum + mark.count, 0), 75);
  assert.ok(frame.marks.some((mark) => mark.count === 37), 'the burst is one mark');
  apart(frame);

  // A name is written over no mark and no ring.
  const { names, rings, points } = await page.evaluate(() => ({
    names: window.drawn_.names, rings: window.drawn_.rings, points: window.drawn_.marks.map(({ x, y, half }) => ({ x, y, half })),
  }));
  assert.ok(names.length > 3 && rings.length === 3, 'names and rings');
  for (const { x0, x1, y } of names) {
    const under = [...rings, ...points].filter((one) => one.y === y && one.x + one.half > x0 && one.x - one.half < x1);
    assert.deepEqual(under, [], 'a name is written over what is there');
  }

  // Who watches is joined to what is watched; that of the chosen session in another colour.
  const plain = await pixels(page, '--accent');
  await page.locator('.lane', { hasText: 'ops:main' }).click();
  await page.mouse.move(2, 2);
  await settled(page);
  assert.ok(await pixels(page, '--accent') > plain + 40, 'the watch of a chosen session is not drawn');
  await page.keyboard.press('Escape');
  await settled(page);

  // What is pending stands out, and no kind by colour alone.
  assert.ok(await pixels(page, '--pending-line') > 150);
  assert.equal(await page.locator('.badge').count(), 1);
  assert.equal(await page.locator('#details li', { hasText: 'has not seen' }).count(), 3);
  const shapes = await page.locator('#legend use').evaluateAll((uses) => uses.map((use) => document.querySelector(use.getAttribute('href')).innerHTML));
  assert.equal(shapes.length, 8);
  assert.equal(new Set(shapes).size, 8);

  // Hover.
  const box = await page.locator('#plot').boundingBox();
  const burst = frame.marks.find((mark) => mark.count === 37);
  await page.mouse.move(box.x + burst.x, box.y + (burst.lane + 0.5) * frame.tall);
  await page.waitForSelector('#tip:not([hidden])');
  assert.match(await page.locator('#tip').textContent(), /^37 events37 × Run completed/);
  // A click chooses it, and zooming to it takes it apart.
  await page.mouse.click(box.x + burst.x, box.y + (burst.lane + 0.5) * frame.tall);
  assert.equal(await page.locator('#details h3').textContent(), '37 events');
  await page.getByRole('button', { name: 'Zoom to it' }).click();
  await settled(page);
  frame = await shown(page);
  apart(frame);
  assert.ok(frame.marks.length > 9, 'the burst fell apart');
  await page.locator('#fit').click();
  await settled(page);

  // Wheel, drag and overview.
  const wide = (await shown(page)).span;
  await page.mouse.move(box.x + box.width / 2, box.y + 60);
  await page.mouse.wheel(0, -240);
  await settled(page);
  const near = (await shown(page)).span;
  assert.ok(near < wide * 0.8, 'the wheel zooms');
  const before = (await shown(page)).marks.find((mark) => mark.count === 1 && mark.x0 > 250);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2 - 80, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await settled(page);
  const after = (await shown(page)).marks;
  assert.ok(after.some((mark) => mark.lane === before.lane && Math.abs(mark.x0 - (before.x0 - 80)) < 1.5), 'the marks follow the drag');
  await page.keyboard.press('0');
  await settled(page);

  // By keyboard alone: Tab to the sessions, then choose, walk and zoom; each step is said.
  await page.locator('body').click({ position: { x: 1, y: 1 } });
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  for (let n = 0; n < 40 && !(await page.evaluate(() => document.activeElement.classList.contains('lane'))); n++) await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('role')), 'row');
  await live(page, /^agent:main:main, 7 events, 3 pending notices/);
  await page.keyboard.press('ArrowDown');
  await live(page, /^<\/script>/);
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-selected')), 'true');
  await page.keyboard.press('ArrowUp');
  await page.keyboard.press('.');
  await live(page, /^Goal changed, .*Event 1 of 7/);
  await page.keyboard.press('.');
  await live(page, /^Human message, .*telegram.*Event 2 of 7/);
  await page.keyboard.press(',');
  await live(page, /^Goal changed, .*Event 1 of 7/);
  assert.equal(await page.locator('#details h3').textContent(), 'goal changed');
  const spanBefore = (await shown(page)).span;
  await page.keyboard.press('+');
  await live(page, / to /);
  await page.keyboard.press('+');
  await settled(page);
  assert.ok((await shown(page)).span < spanBefore / 2, 'plus zooms');
  const place = () => page.evaluate(() => window.drawn_.view.from);
  for (const [key, moves] of [['-', -1], ['Home', -1], ['End', 1], ['ArrowLeft', -1], ['ArrowRight', 1]]) {
    const from = await place();
    await page.keyboard.press(key);
    await settled(page);
    assert.equal(Math.sign((await place()) - from), moves, key);
  }
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'details');
  await page.keyboard.press('?');
  assert.ok(await page.locator('#help').isVisible());
  await accessible(page, 'help');
  await page.keyboard.press('Escape');
  await page.keyboard.press('0');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');

  // A zoom by keyboard keeps the chosen event in sight, where its neighbours are left behind; then it has a name.
  await page.locator('.lane').first().click();
  await page.keyboard.press('.');
  for (let n = 0; n < 12; n++) await page.keyboard.press('+');
  await settled(page);
  assert.ok((await shown(page)).marks.some((mark) => mark.lane === 0 && mark.count === 1), 'the chosen event left the sight');
  assert.ok((await page.evaluate(() => window.drawn_.names.length)) >= 1, 'no mark has a name beside it');
  await page.keyboard.press('0');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');

  // Kinds and sessions can be chosen.
  await page.getByRole('button', { name: /^Run completed/ }).click();
  await settled(page);
  frame = await shown(page);
  assert.equal(frame.marks.reduce((sum, mark) => sum + mark.count, 0), 20);
  await page.getByRole('button', { name: /^Run completed/ }).click();
  await page.locator('#find').fill('subagent dra');
  await settled(page);
  assert.equal(await rows.count(), 1);
  await page.locator('#find').fill('nobody');
  assert.equal(await page.locator('#empty').textContent(), 'No session is like that.');
  await page.locator('#find').fill('');
  await page.locator('#only-pending').click();
  await settled(page);
  assert.equal(await rows.count(), 4);
  await page.locator('#only-pending').click();

  await accessible(page, 'light');
  await picture(page, 'small-light');
  await page.locator('#theme').click();
  await settled(page);
  assert.equal(await page.locator('#theme').getAttribute('aria-pressed'), 'true');
  await accessible(page, 'dark by the button');
  await page.locator('#as-table').click();
  assert.equal(await page.locator('#rows tr').count(), 75);
  assert.equal(await page.locator('#watch-rows tr').count(), 8);
  await accessible(page, 'table');
  await done();
}
{
  const { page, done } = await open('small', { scheme: 'dark' });
  await accessible(page, 'dark by the system');
  await picture(page, 'small-dark');
  await done();
}

// ---- a narrow window, and fingers ----
{
  const { page, done } = await open('small', { width: 420, height: 800, touch: true });
  await accessible(page, 'narrow');
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'it scrolls sideways');
  const box = await page.locator('#plot').boundingBox();
  const devtools = await page.context().newCDPSession(page);
  const touch = (type, points) => devtools.send('Input.dispatchTouchEvent', { type, touchPoints: points.map(([x, id]) => ({ x: box.x + x, y: box.y + 80, id })) });
  const before = (await shown(page)).span;
  await touch('touchStart', [[110, 0], [150, 1]]);
  for (const reach of [10, 20, 30, 40]) await touch('touchMove', [[110 - reach, 0], [150 + reach, 1]]);
  await touch('touchEnd', []);
  await settled(page);
  // From 40 px apart to 120.
  assert.ok(Math.abs((await shown(page)).span / (before / 3) - 1) < 0.05, 'a pinch zooms');
  await page.keyboard.press('0');
  await settled(page);
  await picture(page, 'small-narrow');
  await done();
}

// ---- nothing at all ----
{
  const { page, done } = await open('empty');
  assert.equal(await page.locator('#empty').textContent(), 'Nothing is logged yet.');
  for (const key of ['ArrowDown', '.', '+', 'End', 't', 't']) await page.keyboard.press(key);
  await accessible(page, 'empty');
  await done();
}

// ---- 50,000 events of 500 sessions ----
const timings = { opens: [], zooms: [] };
for (const scheme of ['light', 'dark']) {
  const { page, done } = await open('large', { scheme });
  timings.opens.push(await page.evaluate(() => performance.getEntriesByName('timeline:ready')[0].startTime));
  assert.deepEqual(await page.locator('#facts dd').evaluateAll((facts) => facts.slice(0, 2).map((fact) => fact.textContent)), ['500', '50,000']);
  apart(await shown(page));
  // The lanes in sight have rows, the others none.
  assert.ok(await page.locator('.lane').count() < 60);
  const box = await page.locator('#plot').boundingBox();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 200);
  for (const turn of [-120, -120, -120, -120, -120, -120, 120, 120, 120, -120, -120, -120]) {
    timings.zooms.push(await page.evaluate(([x, y, deltaY]) => new Promise((resolve) => {
      const began = performance.now();
      document.addEventListener('timeline:drawn', () => resolve(performance.now() - began), { once: true });
      document.getElementById('plot').dispatchEvent(new WheelEvent('wheel', { deltaY, clientX: x, clientY: y, bubbles: true, cancelable: true }));
    }), [box.x + box.width * 0.6, box.y + 200, turn]));
    apart(await shown(page));
  }
  await page.keyboard.press('0');
  await settled(page);
  // The last lane is reached by keyboard, and drawn.
  await page.locator('.lane').first().click();
  for (let n = 0; n < 40; n++) await page.keyboard.press('PageDown');
  await settled(page);
  const last = await page.evaluate(() => [document.activeElement.getAttribute('aria-rowindex'), document.getElementById('lanes').getAttribute('aria-rowcount')]);
  assert.equal(last[0], last[1]);
  await page.locator('#order').selectOption('pending');
  await page.locator('#as-table').click();
  await page.keyboard.press('Escape');
  await page.locator('#page-on').click();
  assert.match(await page.locator('#table-about').textContent(), /^201 to 400 of 50,000 events/);
  await page.locator('#as-chart').click();
  await page.locator('#order').selectOption('key');
  await page.mouse.move(2, 2);
  await settled(page);
  await accessible(page, `large, ${scheme}`);
  await picture(page, `large-${scheme}`);
  await done();
}
await browser.close();

const worst = (times) => Math.max(...times);
console.log(`opens in ${timings.opens.map(Math.round).join(' and ')} ms, answers a zoom in ${Math.round(worst(timings.zooms))} ms at the most`);
assert.ok(worst(timings.opens) < OPENS_MS, `opens in ${worst(timings.opens)} ms`);
assert.ok(worst(timings.zooms) < ZOOMS_MS, `answers a zoom in ${worst(timings.zooms)} ms`);
