/** The few parts of a browser's document that rendering uses, for tests without a browser. */

class FakeNode {
  constructor() {
    this.childNodes = [];
    this.parentNode = null;
  }
  get firstChild() {
    return this.childNodes[0] ?? null;
  }
  get nextSibling() {
    const around = this.parentNode.childNodes;
    return around[around.indexOf(this) + 1] ?? null;
  }
}

class FakeText extends FakeNode {
  nodeType = 3;
  constructor(text) {
    super();
    this.nodeValue = text;
  }
}

class FakeElement extends FakeNode {
  nodeType = 1;
  moves = 0;
  constructor(tag, namespaceURI) {
    super();
    Object.assign(this, { tagName: tag, namespaceURI, attributes: {}, listeners: [] });
  }
  get children() {
    return this.childNodes.filter((node) => node.nodeType === 1);
  }
  get textContent() {
    return this.childNodes.map((node) => node.nodeValue ?? node.textContent).join("");
  }
  insertBefore(node, place) {
    if (node.parentNode) node.parentNode.removeChild(node);
    const at = place ? this.childNodes.indexOf(place) : this.childNodes.length;
    this.childNodes.splice(at, 0, node);
    node.parentNode = this;
    node.moves = (node.moves ?? 0) + 1;
  }
  removeChild(node) {
    this.childNodes.splice(this.childNodes.indexOf(node), 1);
    node.parentNode = null;
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  removeAttribute(name) {
    delete this.attributes[name];
  }
  addEventListener(type, listener) {
    this.listeners.push([type, listener]);
  }
  dispatch(type) {
    for (const [known, listener] of this.listeners) if (known === type) listener({ type, currentTarget: this });
  }
}

export const fakeDocument = {
  createTextNode: (text) => new FakeText(text),
  createElement: (tag) => new FakeElement(tag.toUpperCase(), "http://www.w3.org/1999/xhtml"),
  createElementNS: (space, tag) => new FakeElement(tag, space),
};
