// Comforts only: without a script the page shows everything, one below the other.
"use strict";
for (const each of document.querySelectorAll(".controls:not([data-idle])")) each.hidden = false;

const network = document.getElementById("choose-network");
const layer = document.getElementById("choose-layer");

function showChosen() {
  for (const each of document.querySelectorAll(".network"))
    each.classList.toggle("off", Boolean(network) && each.dataset.network !== network.value);
  for (const each of document.querySelectorAll(".layer"))
    each.classList.toggle("off", layer.value !== "" && each.dataset.layer !== layer.value);
}
if (layer) {
  for (const each of [network, layer]) if (each) each.addEventListener("change", showChosen);
  showChosen();
}

const slider = document.getElementById("slider");
const picked = document.getElementById("picked");
const points = JSON.parse(document.getElementById("points").textContent);

function showPoint() {
  const point = points[slider.value];
  picked.textContent = point.text;
  slider.setAttribute("aria-valuetext", point.text);
  for (const each of document.querySelectorAll(".mark.picked")) each.classList.remove("picked");
  document.getElementById(point.mark)?.classList.add("picked");
  if (network && [...network.options].some((each) => each.value === point.network)) {
    network.value = point.network;
    showChosen();
  }
}
slider.addEventListener("input", showPoint);
// A search has chosen one; of a reproduction the first network is shown.
const chosen = points.findIndex((point) => point.chosen);
const first = points.findIndex((point) => network && point.network === network.value);
slider.value = chosen >= 0 ? chosen : first >= 0 ? first : points.length - 1;
showPoint();
