// Does what the lines of JSON on its input say, with the gRPC client for Node; prints JSON lines.
'use strict';

const readline = require('node:readline');
const path = require('node:path');

const packages = process.argv[2];
const endpoints = process.argv[3];
const client = require(path.join(packages, 'rocketmq-client-nodejs'));
const { TransactionResolution, FilterType } = require(
  path.join(packages, 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb'));

const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = client;
const RESOLUTIONS = {
  commit: TransactionResolution.COMMIT,
  rollback: TransactionResolution.ROLLBACK,
  unknown: TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
};
const producers = new Map();
const consumers = new Map();
const held = new Map();
const quiet = { info() {}, debug() {}, warn: console.error, error: console.error };

function say(said) {
  process.stdout.write(JSON.stringify(said) + '\n');
}

function pause(milliseconds) {
  return new Promise(resolve => setTimeout(resolve, milliseconds));
}

// Send and the like wait as long as a busy machine needs.
function options(more) {
  const made = { endpoints, namespace: '', requestTimeout: 20000, logger: quiet, ...more };
  made.sslEnabled = Boolean(process.env.WITH_TLS);
  if (process.env.ACCESS_KEY) {
    made.sessionCredentials = {
      accessKey: process.env.ACCESS_KEY, accessSecret: process.env.SECRET_KEY };
  }
  return made;
}

async function producer(name = '', more = {}) {
  if (!producers.has(name)) {
    const made = new Producer(options(more));
    await made.startup();
    producers.set(name, made);
  }
  return producers.get(name);
}

function message(asked, key) {
  const body = Buffer.alloc(Math.max(Buffer.byteLength(key), asked.size || 0), '.');
  body.write(key);
  const made = { topic: asked.topic, keys: [key], body };
  if (asked.tags) made.tag = asked.tags;
  if (asked.ordered) made.messageGroup = asked.ordered;
  if (asked.at_ms) made.deliveryTimestamp = new Date(asked.at_ms);
  if (asked.properties) made.properties = new Map(Object.entries(asked.properties));
  return made;
}

function sent(key, receipt) {
  const { messageId: id, offset, recallHandle: handle } = receipt;
  say({ sent: key, id, offset, handle: handle || null });
}

async function send(asked) {
  const sender = await producer();
  for (const key of asked.keys) sent(key, await sender.send(message(asked, key)));
}

// One message after the other, each as often as it takes.
async function stream(asked) {
  const sender = await producer();
  const run = async () => {
    for (let number = 0; number < asked.count; number++) {
      const key = `${asked.prefix}${number}`;
      for (;;) {
        try {
          sent(key, await sender.send(message(asked, key)));
          break;
        } catch (error) {
          say({ failed: key, error: String(error) });
          await pause(200);
        }
      }
      await pause(asked.pause);
    }
    say({ streamed: asked.prefix });
  };
  run();
}

// A refusal is what some scenarios look for.
async function refusable(work) {
  try {
    await work();
  } catch (error) {
    say({ refused: String(error.message || error), code: error.code ?? null });
  }
}

function recall(asked) {
  return refusable(async () => {
    const sender = await producer();
    say({ recalled: (await sender.recallMessage(asked.topic, asked.handle)).messageId });
  });
}

async function transact(asked) {
  const checks = asked.checks || {};
  const checker = {
    async check(view) {
      const key = view.keys.join(' ');
      say({ checked: key, size: view.body.length });
      return RESOLUTIONS[checks[key] || 'unknown'];
    },
  };
  const sender = await producer(
    `transactions of ${asked.topic}`, { topics: [asked.topic], topic: asked.topic, checker });
  for (const [key, decision] of Object.entries(asked.decides)) {
    const transaction = sender.beginTransaction();
    sent(key, await sender.send(message(asked, key), transaction));
    if (decision === 'commit') await transaction.commit();
    if (decision === 'rollback') await transaction.rollback();
  }
}

function subscriptions(asked) {
  const wanted = asked.sql
    ? new FilterExpression(asked.sql, FilterType.SQL)
    : new FilterExpression(asked.expression);
  return new Map(asked.topics.map(topic => [topic, wanted]));
}

function got(name, view) {
  const key = [...view.keys].sort().join(' ');
  say({
    got: key,
    by: name,
    topic: view.topic,
    attempt: view.deliveryAttempt,
    tags: view.tag || null,
    ordered: view.messageGroup || null,
    size: view.body.length,
    corrupted: Boolean(view.corrupted),
    properties: Object.fromEntries(view.properties),
    id: view.messageId,
    at_ms: Date.now(),
  });
  return key;
}

async function simple(asked) {
  const consumer = new SimpleConsumer(options({
    consumerGroup: asked.group,
    subscriptions: subscriptions(asked),
    awaitDuration: asked.await_s * 1000,
  }));
  await consumer.startup();
  consumers.set(asked.name, consumer);
}

// The messages stay at hand for ack and hold, by consumer and key.
function receive(asked) {
  return refusable(async () => {
    const views = await consumers.get(asked.name).receive(asked.count, asked.invisible_s * 1000);
    for (const view of views) held.set(`${asked.name} ${got(asked.name, view)}`, view);
  });
}

async function ack(asked) {
  for (const key of asked.keys) {
    await refusable(() => consumers.get(asked.name).ack(held.get(`${asked.name} ${key}`)));
  }
}

function hold(asked) {
  const view = held.get(`${asked.name} ${asked.key}`);
  return refusable(
    () => consumers.get(asked.name).changeInvisibleDuration(view, asked.seconds * 1000));
}

async function push(asked) {
  const left = { ...asked.fails };
  const messageListener = {
    async consume(view) {
      const key = asked.quiet ? view.keys.join(' ') : got(asked.name, view);
      if (asked.pause) await pause(asked.pause);
      if ((left[key] || 0) > 0) {
        left[key] -= 1;
        return ConsumeResult.FAILURE;
      }
      return ConsumeResult.SUCCESS;
    },
  };
  const consumer = new PushConsumer(options({
    consumerGroup: asked.group, subscriptions: subscriptions(asked), messageListener }));
  await consumer.startup();
  consumers.set(asked.name, consumer);
}

async function stop(asked) {
  const consumer = consumers.get(asked.name);
  consumers.delete(asked.name);
  await consumer.shutdown();
}

// Send many as fast as it can, so many at a time; how long all of them took, and each.
async function load(asked) {
  const sender = await producer();
  const times = [];
  const began = performance.now();
  for (let first = 0; first < asked.count; first += asked.together) {
    const size = Math.min(asked.together, asked.count - first);
    const start = performance.now();
    await Promise.all(Array.from(
      { length: size }, (_, number) => sender.send(message(asked, `l${first + number}`))));
    times.push((performance.now() - start) / 1000);
  }
  say({ loaded: asked.count, seconds: (performance.now() - began) / 1000, times });
}

// Receive and acknowledge so many; how long each receive took with its acks.
async function drain(asked) {
  const consumer = consumers.get(asked.name);
  const times = [];
  const began = performance.now();
  let left = asked.count;
  while (left > 0) {
    const start = performance.now();
    const views = await consumer.receive(asked.batch, 60000);
    for (const view of views) await consumer.ack(view);
    times.push((performance.now() - start) / 1000);
    left -= views.length;
  }
  say({ drained: asked.count - left, seconds: (performance.now() - began) / 1000, times });
}

const COMMANDS = {
  send, stream, recall, transact, simple, receive, ack, hold, push, stop, load, drain };

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    try {
      await COMMANDS[asked.do](asked);
      say({ done: asked.id });
    } catch (error) {
      say({ error: `${error} ${error.code ?? ''}`, id: asked.id });
    }
  }
  // A long poll that runs would hold up an orderly shutdown.
  const ends = [...consumers.values(), ...producers.values()].map(each => each.shutdown());
  await Promise.race([Promise.allSettled(ends), pause(500)]);
  process.exit(0);
}

main();
