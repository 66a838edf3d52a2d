/* The functions of functions/*.c in JavaScript: the same names, the same order of arguments. */

/* ---- places */
// Whole numbers of seven bits a byte, the lowest first.
function places(at, count) {
  const found = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    let shift = 0;
    do found[i] |= (bytes[at] & 127) << shift, shift += 7; while (bytes[at++] & 128);
  }
  return found;
}

/* ---- numbers */
// Floats: as they are, or codes of some bits for few values.
function numbers(at, count, bits, values) {
  const view = new DataView(bytes.buffer), found = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    const place = bits * i, byte = bytes[at + 4 * values + (place >> 3)];
    const k = bits ? (byte >> (place & 7)) & ((1 << bits) - 1) : i;
    found[i] = view.getFloat32(at + 4 * k, true);
  }
  return found;
}

/* ---- linear */
function linear(x, y, rows, inputs, outputs, relu, places, weights, bias) {
  for (let r = 0; r < rows; r++)
    for (let o = 0, p = 0, k = 0; o < outputs; o++) {
      let at = r * inputs, sum = bias ? bias[o] : 0;
      for (let left = places ? places[p++] : inputs; left > 0; left--) {
        at += places ? places[p++] : 0;
        sum += weights[k++] * x[at++];
      }
      y[r * outputs + o] = relu && sum < 0 ? 0 : sum;
    }
}

/* ---- finish */
function finish(row, y, done, width, pool, relu) {
  for (let i = 0; i + pool <= width; i += pool) {
    let most = row[i];
    for (let j = 1; j < pool * pool; j++)
      most = Math.max(most, row[i + j % pool + (j / pool | 0) * width]);
    y[done++] = relu && most < 0 ? 0 : most;
  }
  return done;
}

/* ---- conv */
function conv(x, y, row, channels, down, right, height, width, pool, relu, places, weights, bias) {
  let begin = 0, first = 0, done = 0;
  for (let c = 0; c < channels; c++) {
    const taps = places[begin];
    for (let top = 0; top + pool <= height; top += pool) {
      row.fill(bias ? bias[c] : 0, 0, pool * width);
      for (let r = 0; r < pool; r++)
        for (let k = 0, from = (top + r) * down; k < taps; k++, from++) {
          from += places[begin + 1 + k];
          const weight = weights[first + k];
          for (let i = 0; i < width; i++) row[r * width + i] += weight * x[from + i * right];
        }
      done = finish(row, y, done, width, pool, relu);
    }
    begin += taps + 1, first += taps;
  }
}

/* ---- read_at */
function read_at(g, axis, transposed, output, place) {
  const stride = g[axis + 9], shift = place * g[axis + 15] - g[axis + 12];
  const at = transposed ? (output - shift) / stride : output * stride + shift;
  return Number.isInteger(at) && at >= 0 && at < g[axis] ? at : -1;
}

/* ---- conv_any */
function conv_any(x, y, row, channels, transposed, pool, relu, g, places, weights, bias) {
  const [depth, height, width, high, wide, kd, kh, kw] = [6, 7, 8, 1, 2, 3, 4, 5].map(i => g[i]);
  let begin = 0, first = 0, done = 0;
  for (let c = 0; c < channels; c++) {
    const taps = places[begin];
    for (let z = 0; z < depth; z++)
      for (let top = 0; top + pool <= height; top += pool) {
        row.fill(bias ? bias[c] : 0, 0, pool * width);
        for (let r = 0; r < pool; r++)
          for (let k = 0, at = 0; k < taps; k++, at++) {
            at += places[begin + 1 + k];
            const plane = Math.floor(at / kw / kh), down = Math.floor(at / kw) % kh;
            const iz = read_at(g, 0, transposed, z, plane % kd);
            const iy = read_at(g, 1, transposed, top + r, down);
            if (iz < 0 || iy < 0) continue;
            const line = ((Math.floor(plane / kd) * g[0] + iz) * high + iy) * wide;
            for (let i = 0; i < width; i++) {
              const ix = read_at(g, 2, transposed, i, at % kw);
              if (ix >= 0) row[r * width + i] += weights[first + k] * x[line + ix];
            }
          }
        done = finish(row, y, done, width, pool, relu);
      }
    begin += taps + 1, first += taps;
  }
}

/* ---- begin */
function begin(state, given, units, direction) {
  for (let u = 0; u < units; u++) state[u] = given ? given[direction * units + u] : 0;
}

/* ---- sigmoid_of */
const sigmoid_of = v => 1 / (1 + Math.exp(-v));

/* ---- lstm */
function lstm(x, hidden, cell, y, scratch, steps, features, units, directions, direction, cells,
              places, weights, bias, own_places, own_weights, own_bias) {
  const [h, c, given] = [0, 1, 2].map(i => scratch.subarray(i * units));
  const own = scratch.subarray(6 * units);
  begin(h, hidden, units, direction);
  begin(c, cell, units, direction);
  for (let step = 0; step < steps; step++) {
    const t = direction ? steps - 1 - step : step;
    linear(x.subarray(t * features), given, 1, features, 4 * units, 0, places, weights, bias);
    linear(h, own, 1, units, 4 * units, 0, own_places, own_weights, own_bias);
    for (let u = 0; u < units; u++) {
      const [enter, forget, fresh, leave] = [0, 1, 2, 3].map(i => given[i * units + u] + own[i * units + u]);
      c[u] = sigmoid_of(forget) * c[u] + sigmoid_of(enter) * Math.tanh(fresh);
      y[(t * directions + direction) * units + u] = h[u] = sigmoid_of(leave) * Math.tanh(c[u]);
    }
  }
  for (let u = 0; cells && u < units; u++) y[(steps * directions + direction) * units + u] = c[u];
}

/* ---- gru */
function gru(x, hidden, y, scratch, steps, features, units, directions, direction,
             places, weights, bias, own_places, own_weights, own_bias) {
  const h = scratch, given = scratch.subarray(units), own = scratch.subarray(4 * units);
  begin(h, hidden, units, direction);
  for (let step = 0; step < steps; step++) {
    const t = direction ? steps - 1 - step : step;
    linear(x.subarray(t * features), given, 1, features, 3 * units, 0, places, weights, bias);
    linear(h, own, 1, units, 3 * units, 0, own_places, own_weights, own_bias);
    for (let u = 0; u < units; u++) {
      const reset = sigmoid_of(given[u] + own[u]), v = 2 * units + u;
      const update = sigmoid_of(given[units + u] + own[units + u]);
      const fresh = Math.tanh(given[v] + reset * own[v]);
      y[(t * directions + direction) * units + u] = h[u] = fresh + update * (h[u] - fresh);
    }
  }
}

/* ---- pool */
function pool(x, y, average, channels, height, width, rows, columns, down, right, bounds, factor) {
  for (let c = 0, done = 0; c < channels; c++)
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) {
        const wide = 2 * (rows + j);
        let found = average ? 0 : -Infinity;
        for (let a = bounds[2 * i]; a < bounds[2 * i + 1]; a += down)
          for (let b = bounds[wide]; b < bounds[wide + 1]; b += right) {
            const v = x[(c * height + a) * width + b];
            found = average ? found + v : Math.max(found, v);
          }
        y[done++] = average ? found * factor[i * columns + j] : found;
      }
}

/* ---- scale */
function scale(x, y, outer, channels, inner, factor, shift) {
  for (let k = 0; k < outer * channels * inner; k++) {
    const c = Math.floor(k / inner) % channels;
    y[k] = x[k] * factor[c] + shift[c];
  }
}

/* ---- normalise */
function normalise(x, y, rows, length, around_zero, eps) {
  for (let r = 0; r < rows; r++) {
    const row = x.subarray(r * length, (r + 1) * length);
    const mean = around_zero ? 0 : row.reduce((sum, v) => sum + v, 0) / length;
    const squares = row.reduce((sum, v) => sum + (v - mean) ** 2, 0) / length;
    for (let i = 0; i < length; i++) y[r * length + i] = (row[i] - mean) / Math.sqrt(squares + eps);
  }
}

/* ---- mean */
function mean(x, y, outer, length, inner) {
  for (let o = 0; o < outer; o++)
    for (let j = 0; j < inner; j++) {
      let sum = 0;
      for (let i = 0; i < length; i++) sum += x[(o * length + i) * inner + j];
      y[o * inner + j] = sum / length;
    }
}

/* ---- softmax */
function softmax(x, y, outer, length, inner, logarithm) {
  for (let o = 0; o < outer; o++)
    for (let j = 0; j < inner; j++) {
      const at = i => (o * length + i) * inner + j;
      let most = -Infinity, total = 0;
      for (let i = 0; i < length; i++) most = Math.max(most, x[at(i)]);
      for (let i = 0; i < length; i++) total += Math.exp(x[at(i)] - most);
      for (let i = 0; i < length; i++) {
        const v = x[at(i)] - most;
        y[at(i)] = logarithm ? v - Math.log(total) : Math.exp(v) / total;
      }
    }
}

/* ---- combine */
function combine(a, b, y, which, relu, axes, size, table) {
  const combined = [
    (v, w) => v + w, (v, w) => v * w, (v, w) => v - w, (v, w) => v / w,
    Math.max, Math.min, (v, w) => v < 0 ? v * w : v,
    (v, w) => +(v === w), (v, w) => +(v > w), (v, w) => v ? w : 0,
  ][which];
  for (let k = 0; k < size; k++) {
    let rest = k, i = 0, j = 0;
    for (let axis = axes - 1; axis >= 0; axis--) {
      const at = rest % table[3 * axis];
      i += at * table[3 * axis + 1];
      j += at * table[3 * axis + 2];
      rest = Math.floor(rest / table[3 * axis]);
    }
    const v = combined(a[i], b[j]);
    y[k] = relu && v < 0 ? 0 : v;
  }
}

/* ---- copy */
function copy(x, y, count, part, whole, first) {
  for (let i = 0; i < count; i++)
    for (let j = 0; j < part; j++) y[i * whole + first + j] = x[i * part + j];
}

/* ---- unpack */
function unpack(y, size, from) {
  y.set(from.subarray(0, size));
}

/* ---- gather */
function gather(x, y, runs, filling, places) {
  for (let r = 0, done = 0; r < runs; r++) {
    const [left, first, code] = places.subarray(3 * r);
    const step = code & 1 ? -(code >> 1) - 1 : code >> 1;
    for (let i = 0; i < left; i++) y[done++] = first ? x[first - 1 + i * step] : filling;
  }
}

/* ---- resize */
function resize(x, y, outer, before, after, inner, low, high, part) {
  for (let o = 0, done = 0; o < outer; o++)
    for (let i = 0; i < after; i++)
      for (let j = 0; j < inner; j++) {
        const at = k => x[(o * before + k) * inner + j];
        y[done++] = at(low[i]) * (1 - part[i]) + at(high[i]) * part[i];
      }
}

/* ---- embed */
function embed(x, y, count, width, rows, table) {
  for (let i = 0; i < count; i++) {
    const row = Math.trunc(Math.min(Math.max(x[i] || 0, 0), rows - 1));
    y.set(table.subarray(row * width, (row + 1) * width), i * width);
  }
}

/* ---- matmul */
function matmul(a, b, y, batch, rows, inner, columns) {
  for (let n = 0, done = 0; n < batch; n++)
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) {
        let sum = 0;
        for (let k = 0; k < inner; k++)
          sum += a[(n * rows + i) * inner + k] * b[(n * inner + k) * columns + j];
        y[done++] = sum;
      }
}

/* ---- attention */
function attention(q, k, v, y, scores, queries, keys, heads, width, values, causal, masked, pitch,
                   factor, mask) {
  for (let i = 0, done = 0; i < queries; i++)
    for (let h = 0; h < heads; h++) {
      const seen = causal ? Math.min(i + 1, keys) : keys;
      let most = -Infinity, total = 0;
      for (let j = 0; j < seen; j++) {
        let sum = 0;
        for (let d = 0; d < width; d++)
          sum += q[(i * heads + h) * width + d] * k[(j * heads + h) * width + d];
        scores[j] = sum * factor + (masked ? mask[h * pitch + i * keys + j] : 0);
        most = Math.max(most, scores[j]);
      }
      for (let j = 0; j < seen; j++) {
        scores[j] = scores[j] > -Infinity ? Math.exp(scores[j] - most) : 0;
        total += scores[j];
      }
      for (let d = 0; d < values; d++) {
        let sum = 0;
        for (let j = 0; j < seen; j++) sum += scores[j] * v[(j * heads + h) * values + d];
        y[done++] = total > 0 ? sum / total : 0;
      }
    }
}

/* ---- each */
function each(x, y, n, of) {
  for (let i = 0; i < n; i++) y[i] = of(x[i]);
}

/* ---- erf */
// By its series, which is exact enough where the result is not one yet.
function erf(v) {
  if (Math.abs(v) > 4) return Math.sign(v);
  let term = v, sum = v;
  for (let n = 1; n < 60; n++) term *= -v * v / n, sum += term / (2 * n + 1);
  return sum * 2 / Math.sqrt(Math.PI);
}

/* ---- softplus_of */
const softplus_of = v => Math.max(v, 0) + Math.log1p(Math.exp(-Math.abs(v)));

/* ---- hard_sigmoid_of */
const hard_sigmoid_of = v => Math.min(Math.max(v / 6 + 0.5, 0), 1);

/* ---- relu */
const relu = (x, y, n) => each(x, y, n, v => v < 0 ? 0 : v);

/* ---- gelu */
const gelu = (x, y, n) => each(x, y, n, v => 0.5 * v * (1 + erf(v * Math.SQRT1_2)));

/* ---- gelu_tanh */
const gelu_tanh = (x, y, n) => each(x, y, n, v =>
  0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3))));

/* ---- silu */
const silu = (x, y, n) => each(x, y, n, v => v / (1 + Math.exp(-v)));

/* ---- sigmoid */
const sigmoid = (x, y, n) => each(x, y, n, v => sigmoid_of(v));

/* ---- tanh_each */
const tanh_each = (x, y, n) => each(x, y, n, Math.tanh);

/* ---- leaky_relu */
const leaky_relu = (x, y, n, slope) => each(x, y, n, v => v < 0 ? v * slope : v);

/* ---- clamp */
const clamp = (x, y, n, low, high) => each(x, y, n, v => Math.min(Math.max(v, low), high));

/* ---- elu */
const elu = (x, y, n, alpha, factor) => each(x, y, n, v => v > 0 ? v : alpha * Math.expm1(v * factor));

/* ---- power */
const power = (x, y, n, exponent) => each(x, y, n, v => v ** exponent);

/* ---- softplus */
const softplus = (x, y, n) => each(x, y, n, v => softplus_of(v));

/* ---- mish */
const mish = (x, y, n) => each(x, y, n, v => v * Math.tanh(softplus_of(v)));

/* ---- scale_shift */
const scale_shift = (x, y, n, factor, shift) => each(x, y, n, v => v * factor + shift);

/* ---- hard_swish */
const hard_swish = (x, y, n) => each(x, y, n, v => v * hard_sigmoid_of(v));

/* ---- hard_sigmoid */
const hard_sigmoid = (x, y, n) => each(x, y, n, v => hard_sigmoid_of(v));

/* ---- exp_each */
const exp_each = (x, y, n) => each(x, y, n, Math.exp);

/* ---- log_each */
const log_each = (x, y, n) => each(x, y, n, Math.log);

/* ---- abs_each */
const abs_each = (x, y, n) => each(x, y, n, Math.abs);

/* ---- erf_each */
const erf_each = (x, y, n) => each(x, y, n, v => erf(v));
