// A page that is opened from a folder may not start a worker: the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(this.frame);
      this.frame.contentWindow.postMessage = (data) => this.hear(data);
      const script = this.frame.contentDocument.createElement("script");
      this.loaded = new Promise((done) => script.addEventListener("load", done));
      script.src = address;
      this.frame.contentDocument.body.append(script);
    }

    hear(data) {
      const message = new MessageEvent("message", { data });
      this.dispatchEvent(message);
      this.onmessage?.(message);
    }

    async postMessage(data) {
      await this.loaded;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
