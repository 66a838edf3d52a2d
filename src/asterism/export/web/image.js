// What was drawn or dropped, as the network's input; its answer as bars.
const [channels, height, width] = inputs[0], classes = outputs[0][0], FINE = Math.max(1, Math.ceil(280 / width));
const get = id => document.getElementById(id);
const paper = get("paper"), seen = get("seen"), pen = paper.getContext("2d", {willReadFrequently: true});
[paper.width, paper.height, seen.width, seen.height] = [width * FINE, height * FINE, width, height];
pen.lineCap = pen.lineJoin = "round";
pen.lineWidth = paper.width / 14;
pen.strokeStyle = pen.fillStyle = "#fff";

const bars = Array.from({length: classes}, (_, i) => {
  const row = document.createElement("li");
  row.append(...["span", "i", "span"].map(tag => document.createElement(tag)));
  row.firstChild.textContent = i;
  get("bars").append(row);
  return row;
});

// The numbers of a canvas between 0 and 1, channel by channel.
function levels(context, count) {
  const {width: w, height: h} = context.canvas, {data} = context.getImageData(0, 0, w, h);
  const gray = k => (0.299 * data[4 * k] + 0.587 * data[4 * k + 1] + 0.114 * data[4 * k + 2]) / 255;
  return Float32Array.from({length: count * w * h}, (_, i) => {
    const k = i % (w * h);
    return count === 1 ? gray(k) : data[4 * k + Math.floor(i / (w * h))] / 255;
  });
}

// As the pictures of MNIST were made: the drawing fills 20 of 28 pixels, its centre of mass is in the middle.
function centred(ink, w, h) {
  let [left, right, top, bottom, mass, x, y] = [w, -1, h, -1, 0, 0, 0];
  ink.forEach((v, k) => {
    if (v < 0.05) return;
    const i = Math.floor(k / w), j = k % w;
    [left, right, top, bottom] = [Math.min(left, j), Math.max(right, j), Math.min(top, i), Math.max(bottom, i)];
    mass += v, x += v * (j + 0.5), y += v * (i + 0.5);
  });
  const made = new Float32Array(height * width), N = 6;
  if (!mass) return made;
  const step = Math.max((right - left + 1) / width, (bottom - top + 1) / height) * 28 / 20;
  const at = (i, j) => i >= 0 && j >= 0 && i < h && j < w ? ink[i * w + j] : 0;
  return made.map((_, k) => {
    let sum = 0;
    for (let a = 0; a < N * N; a++) {
      const i = Math.floor(k / width) + (Math.floor(a / N) + 0.5) / N - height / 2;
      const j = k % width + (a % N + 0.5) / N - width / 2;
      sum += at(Math.floor(y / mass + i * step), Math.floor(x / mass + j * step));
    }
    return sum / N / N;
  });
}

function shares(made) {
  const sum = made.reduce((a, b) => a + b, 0);
  if (made.every(v => v >= 0) && Math.abs(sum - 1) < 1e-3) return made;
  const most = made.reduce((a, b) => Math.max(a, b)), powers = made.map(v => Math.exp(v - most));
  const total = powers.reduce((a, b) => a + b, 0);
  return powers.map(v => v / total);
}

function show(x) {
  const begun = performance.now(), found = shares(run(x)), took = performance.now() - begun;
  const best = found.indexOf(found.reduce((a, b) => Math.max(a, b)));
  bars.forEach((row, i) => {
    row.className = i === best ? "best" : "";
    row.children[1].style.width = `${100 * found[i]}%`;
    row.lastChild.textContent = `${(100 * found[i]).toFixed(1)} %`;
  });
  get("answer").textContent = `This is ${best}.`;
  get("time").textContent = `${took.toFixed(1)} ms in this browser.`;
  const area = width * height, picture = new ImageData(width, height);
  for (let k = 0; k < 4 * area; k++)
    picture.data[k] = k % 4 === 3 ? 255 : 255 * x[channels === 1 ? k >> 2 : (k % 4) * area + (k >> 2)];
  seen.getContext("2d").putImageData(picture, 0, 0);
  return found;
}

function drawn() {
  const x = channels === 1 ? centred(levels(pen, 1), paper.width, paper.height) : null;
  if (x) return show(x);
  const small = new OffscreenCanvas(width, height).getContext("2d");
  small.drawImage(paper, 0, 0, width, height);
  return show(levels(small, channels));
}

function clear() {
  pen.clearRect(0, 0, paper.width, paper.height);
  seen.getContext("2d").clearRect(0, 0, width, height);
  bars.forEach(row => { row.className = row.lastChild.textContent = ""; row.children[1].style.width = 0; });
  get("answer").textContent = "Draw something.";
  get("time").textContent = "";
}

let waiting = false, last = null;
const place = e => [e.offsetX * paper.width / paper.clientWidth, e.offsetY * paper.height / paper.clientHeight];
function draw(e) {
  if (!last) return;
  pen.beginPath();
  pen.moveTo(...last);
  pen.lineTo(...(last = place(e)));
  pen.stroke();
  if (!waiting) requestAnimationFrame(() => { waiting = false; drawn(); });
  waiting = true;
}
let dropped = false;
paper.addEventListener("pointerdown", e => {
  if (dropped) clear();
  dropped = false, last = place(e);
  if (e.isTrusted) paper.setPointerCapture(e.pointerId);
  draw(e);
});
paper.addEventListener("pointermove", draw);
for (const end of ["pointerup", "pointercancel"]) paper.addEventListener(end, () => { last = null; });
get("clear").addEventListener("click", clear);

// A picture is shrunk to the network's size; dark on light becomes light on dark where there is one channel.
async function open(file) {
  let picture;
  try { picture = await createImageBitmap(file); } catch {
    get("answer").textContent = "This is not a picture that the browser knows.";
    return;
  }
  const small = Object.assign(document.createElement("canvas"), {width, height}).getContext("2d");
  small.imageSmoothingQuality = "high";
  small.fillRect(0, 0, width, height);
  small.drawImage(picture, 0, 0, width, height);
  clear();
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small.canvas, 0, 0, paper.width, paper.height);
  dropped = true;
  const x = levels(small, channels), edge = [x[0], x[width - 1], x.at(-1), x.at(-width)];
  return show(channels === 1 && Math.min(...edge) > 0.5 ? x.map(v => 1 - v) : x);
}
get("file").addEventListener("change", e => e.target.files[0] && open(e.target.files[0]));
addEventListener("dragover", e => e.preventDefault());
addEventListener("drop", e => { e.preventDefault(); if (e.dataTransfer.files[0]) open(e.dataTransfer.files[0]); });
globalThis.network = {run, inputs, outputs, show, drawn, open};
