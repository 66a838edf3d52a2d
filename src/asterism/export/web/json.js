// Inputs and outputs as JSON.
const get = id => document.getElementById(id);
const filled = ([size, ...rest]) => size === undefined ? 0 : Array.from({length: size}, () => filled(rest));
const shaped = (flat, [size, ...rest]) => size === undefined ? flat[0]
  : Array.from({length: size}, (_, i) => shaped(flat.subarray(i * flat.length / size, (i + 1) * flat.length / size), rest));
function answer() {
  try {
    const given = JSON.parse(get("given").value), begun = performance.now(), made = [run(...given)].flat();
    get("made").textContent = JSON.stringify(made.map((each, i) => shaped(each, outputs[i])));
    get("time").textContent = `${(performance.now() - begun).toFixed(1)} ms in this browser.`;
  } catch (error) {
    get("made").textContent = error.message;
    get("time").textContent = "";
  }
}
get("given").value = JSON.stringify(inputs.map(filled));
get("given").addEventListener("input", answer);
answer();
globalThis.network = {run, inputs, outputs};
