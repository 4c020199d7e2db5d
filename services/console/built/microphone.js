// Runs beside the page, in the browser's thread for audio: brings the microphone's samples to the rate of the protocol, 20 ms a piece.
class Microphone extends AudioWorkletProcessor {
  constructor({ processorOptions }) {
    super();
    const { rate } = processorOptions;
    this.step = sampleRate / rate;
    this.piece = new Int16Array(rate / 50);
    [this.filled, this.place, this.sum, this.count, this.last] = [0, 0, 0, 0, 0];
  }

  process([input]) {
    for (const sample of input[0] ?? []) {
      this.sum += sample;
      this.count += 1;
      for (this.place += 1; this.place >= this.step; this.place -= this.step) this.put();
    }
    return true;
  }

  put() {
    if (this.count > 0) this.last = this.sum / this.count;
    [this.sum, this.count] = [0, 0];
    this.piece[this.filled++] = Math.round(Math.max(-1, Math.min(1, this.last)) * 32_767);
    if (this.filled === this.piece.length) {
      this.port.postMessage(this.piece.slice());
      this.filled = 0;
    }
  }
}

registerProcessor("microphone", Microphone);
