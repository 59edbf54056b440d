// SPDX-License-Identifier: Apache-2.0
// Runs the code of a JavaScript context in one long-lived process, as at Node's prompt: variables
// stay, and await works outside of functions. It needs Node's --expose-internals. Exchanges frames
// of proto/agent.h with the agent on descriptor CTL. Timers and servers of earlier calls go on
// between calls. Errors of user code are its objects: looking at one can throw another.
'use strict';

const CTL = 3, STARTS = 4; // as in driver.c
const EXEC = 2, CODE = 3, INTERRUPT = 4, RESEED = 5, PONG = 64, EXIT = 67, DONE = 68;
const HEADER_SIZE = 8, LAST_MAX = 32768;
const fs = require('fs');
const net = require('net');
const stream = require('stream');
const util = require('util');
const vm = require('vm');
const { createRequire } = require('module');
const { exit, chdir, cwd, env, kill, pid } = process;

// ---- standard streams

/** Writes all of `data`; waits while the reader is slow. */
function writeAll(fd, data) {
  while (data.length) {
    try {
      data = data.subarray(fs.writeSync(fd, data));
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    }
  }
}

/** Returns a stream that writes at once. It has no state: an interrupt can end the code within a write. */
function output(fd) {
  const out = new stream.Writable();
  out.write = (chunk, encoding, done) => {
    if (typeof encoding === 'function') [encoding, done] = [undefined, encoding];
    const bytes = ArrayBuffer.isView(chunk)
      ? Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength) : Buffer.from(chunk, encoding);
    let failed = null;
    try {
      writeAll(fd, bytes);
    } catch (error) {
      failed = error; // user code closed the descriptor
    }
    if (typeof done === 'function') process.nextTick(done, failed);
    return true;
  };
  out.fd = fd;
  out.isTTY = false;
  out.setMaxListeners(0); // an interrupt can leave one that console.log has added
  return out;
}

for (const [name, fd] of [['stdout', 1], ['stderr', 2]])
  Object.defineProperty(process, name, { value: output(fd), configurable: true, enumerable: true });

// ---- frames

const agent = new net.Socket({ fd: CTL, readable: true, writable: true });
let received = Buffer.alloc(0);

function sendFrame(kind, payload = Buffer.alloc(0)) {
  const header = Buffer.alloc(HEADER_SIZE);
  header.writeUInt32LE(payload.length, 0);
  header[4] = kind;
  agent.write(Buffer.concat([header, payload]));
}

function sendExit(code, last = '') {
  const head = Buffer.alloc(5);
  head.writeInt32LE(code, 0);
  sendFrame(EXIT, Buffer.concat([head, Buffer.from(last).subarray(0, LAST_MAX)]));
}

/** Reads the texts of a request. */
class Reader {
  constructor(payload, at) {
    this.payload = payload;
    this.at = at;
  }

  number() {
    this.at += 4;
    return this.payload.readUInt32LE(this.at - 4);
  }

  text() {
    const size = this.number();
    this.at += size;
    return this.payload.toString('utf8', this.at - size, this.at);
  }
}

// ---- code

/** Turns code that awaits outside of functions into a script; null: it does not. */
let withoutAwait = () => null;
try {
  withoutAwait = require('internal/repl/await').processTopLevelAwait;
} catch (ignored) {
  // another version of Node: such an await is a syntax error
}

const globalRequire = createRequire(cwd() + '/');
Object.assign(globalThis, { require: globalRequire, module: globalRequire('module'), exports: {} });
const importer = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER ?? ((name) => import(name));

// Node warns at the first import that the importer is experimental. Users cannot change that.
const { emitWarning } = process;
process.emitWarning = function (warning, ...rest) {
  if (String(warning).includes('vm.USE_MAIN_CONTEXT_DEFAULT_LOADER')) return;
  emitWarning.call(process, warning, ...rest);
};

let calls = 0;
let interrupt = null; // ends an await of the running call

process.on('SIGINT', () => interrupt?.());
process.on('uncaughtException', (error) => process.stderr.write(`Uncaught ${describe(error)}\n`));

const OURS = /^\s+at .*(Script\.runIn|[(\s/]driver\.js:|\(?node:vm:)/;

/** Describes an error without the frames of this file. */
function describe(error) {
  try {
    if (typeof error?.stack !== 'string') return util.inspect(error);
    const lines = util.inspect(error).split('\n');
    const first = lines.findIndex((line) => OURS.test(line));
    const kept = lines.filter((line, at) => first < 0 || at < first || !/^\s+at /.test(line));
    return kept.join('\n');
  } catch (ignored) {
    return 'an error that cannot be shown';
  }
}

function isInterrupt(error) {
  try {
    return error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED';
  } catch (ignored) {
    return false;
  }
}

/** Runs the code. Returns null, or what it threw. */
async function evaluate(code) {
  const interrupted = new Promise((resolve, reject) => {
    interrupt = () => reject(Object.assign(new Error(), { code: 'ERR_SCRIPT_EXECUTION_INTERRUPTED' }));
  });
  interrupted.catch(() => {});
  try {
    const filename = `<call ${++calls}>`;
    let script = null;
    if (code.includes('await')) {
      try {
        script = withoutAwait(code);
      } catch (ignored) {
        // the compiler reports the error better
      }
    }
    const compiled = new vm.Script(script ?? code, { filename, importModuleDynamically: importer });
    announceStart();
    const value = compiled.runInThisContext({ breakOnSigint: true, displayErrors: true });
    if (script !== null) await Promise.race([value, interrupted]);
    return null;
  } catch (error) {
    return { error };
  } finally {
    interrupt = null;
  }
}

/** Interrupts code that awaits, and its programs. Does nothing after the call's end. */
function interruptAwait() {
  try {
    if (interrupt !== null) kill(-pid, 'SIGINT');
  } catch (ignored) {
    interrupt(); // the code has left its process group
  }
}

/** Tells the agent that SIGINT now reaches the code. */
function announceStart() {
  fs.writeSync(STARTS, Buffer.alloc(4));
}

/** Applies the folder and variables of a call. Returns what undoes it. */
function enter(folder, variables) {
  let before = null;
  try {
    if (folder) before = cwd();
  } catch (ignored) {
    // the folder was removed
  }
  const old = variables.map(([name]) => [name, env[name]]);
  if (folder) chdir(folder);
  for (const [name, value] of variables) env[name] = value;
  return () => {
    for (const [name, value] of old.reverse())
      if (value === undefined) delete env[name];
      else env[name] = value;
    if (before) chdir(before);
  };
}

async function run(request, code) {
  let leave;
  try {
    leave = enter(request.folder, request.variables);
  } catch (error) {
    return [1, `ramet: enter the folder ${request.folder}: ${error.message}\n`];
  }
  const thrown = await evaluate(code);
  try {
    leave();
  } catch (ignored) {
    // the folder was removed
  }
  if (thrown === null) return [0, ''];
  if (isInterrupt(thrown.error)) return [130, 'interrupted\n'];
  return [1, `Uncaught ${describe(thrown.error)}\n`];
}

// ---- requests

let request = null, parts = [], missing = 0;

async function runWhole() {
  const code = Buffer.concat(parts).toString('utf8').replace(/^\ufeff/, '');
  const [exitCode, last] = await run(request, code);
  sendExit(exitCode, last);
}

function begin(payload) {
  const reader = new Reader(payload, 18);
  missing = payload.readUInt32LE(6);
  parts = [];
  request = { folder: reader.text(), variables: [] };
  for (let n = reader.number(); n > 0; n--) request.variables.push([reader.text(), reader.text()]);
  if (!missing) runWhole();
}

function add(part) {
  if (!part.length) {
    sendExit(1); // its sender left before the end
    return;
  }
  parts.push(part);
  missing -= part.length;
  if (!missing) runWhole();
}

function handle(kind, payload) {
  if (kind === EXEC) begin(payload);
  else if (kind === CODE) add(payload);
  else if (kind === INTERRUPT) interruptAwait();
  else if (kind === RESEED) sendFrame(DONE); // Node's own generators cannot be seeded
}

agent.on('data', (data) => {
  received = received.length ? Buffer.concat([received, data]) : data;
  while (received.length >= HEADER_SIZE) {
    const size = received.readUInt32LE(0);
    if (received.length < HEADER_SIZE + size) break;
    const kind = received[4], payload = Buffer.from(received.subarray(HEADER_SIZE, HEADER_SIZE + size));
    received = received.subarray(HEADER_SIZE + size);
    handle(kind, payload);
  }
});
agent.on('end', () => exit(0)); // the agent is gone
agent.on('error', () => exit(0));
sendFrame(PONG);
