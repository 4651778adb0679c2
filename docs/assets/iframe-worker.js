// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Search without a server: browsers start no workers for pages that are files. There the script of the search runs in a
 * hidden frame instead, and messages pass between the two as if it were a worker.
 */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html><title>search</title>";
      this.frame.onload = () => this.start(url);
      document.documentElement.append(this.frame);
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = reject;
        this.frame.contentDocument.head.append(script);
      });
    }

    async start(url) {
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((done, next) => done.then(() => this.load(next)), Promise.resolve());
      await this.load(url);
      this.inside = inside;
      this.waiting.splice(0).forEach((data) => this.postMessage(data));
    }

    postMessage(data) {
      if (this.inside) {
        this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
      } else {
        this.waiting.push(data);
      }
    }

    terminate() {
      this.frame.remove();
    }
  };
}
