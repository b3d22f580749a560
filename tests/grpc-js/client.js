// A gRPC client (@grpc/grpc-js) with the scenarios of tests/integration/grpc_client.py: client.js ADDRESS SCENARIO prints
// the same JSON.
'use strict';

const grpc = require('@grpc/grpc-js');

const [address, scenario] = process.argv.slice(2);
const retries = JSON.stringify({ methodConfig: [{ name: [{ service: 't.Echo' }], retryPolicy: {
  maxAttempts: 3, initialBackoff: '0.01s', maxBackoff: '0.01s', backoffMultiplier: 1,
  retryableStatusCodes: ['RESOURCE_EXHAUSTED'] } }] });
const rateLimit = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit';
const client = new grpc.Client(address, grpc.credentials.createInsecure(),
  scenario === 'retries' ? { 'grpc.service_config': retries } : {});
const same = bytes => bytes;
const within = seconds => ({ deadline: Date.now() + 1000 * seconds });

function fieldsOf(metadata) {
  return Object.fromEntries(Object.entries(metadata.getMap())
    .map(([name, value]) => [name, typeof value === 'string' ? value : value.toString('hex')]));
}

function outcome(status) {
  return [grpc.status[status.code], status.details, fieldsOf(status.metadata)];
}

// Resolves with the reply and the trailing metadata, or with the outcome of a failed call.
function unary(name, message, seconds) {
  return new Promise(resolve => {
    let reply;
    client.makeUnaryRequest('/t.Echo/' + name, same, same, message, new grpc.Metadata(), within(seconds),
      (error, bytes) => { reply = bytes; })
      .on('status', status => setImmediate(() => resolve(status.code ? outcome(status) : [reply, fieldsOf(status.metadata)])));
  });
}

async function say() {
  const got = await unary('Say', Buffer.from('hi'), 10);
  return [got[0].toString(), ...got.slice(1)];
}

function messagesOf(call, each) {
  return new Promise((resolve, reject) => {
    const got = [];
    call.on('data', bytes => { got.push(bytes.toString()); each(got.length); });
    call.on('end', () => resolve(got));
    call.on('error', reject);
  });
}

function sum(messages) {
  return new Promise((resolve, reject) => {
    const call = client.makeClientStreamRequest('/t.Echo/Sum', same, same, new grpc.Metadata(), within(10),
      (error, bytes) => error ? reject(error) : resolve(bytes.toString()));
    messages.forEach(message => call.write(Buffer.from(message)));
    call.end();
  });
}

function chat() { // the next message is sent when the reply to the last one is there
  const call = client.makeBidiStreamRequest('/t.Echo/Chat', same, same, new grpc.Metadata(), within(10));
  const send = i => i < 3 ? call.write(Buffer.from('m' + i)) : call.end();
  send(0);
  return messagesOf(call, send);
}

const scenarios = {
  async calls() {
    const counted = client.makeServerStreamRequest('/t.Echo/Count', same, same, Buffer.from('5'), new grpc.Metadata(), within(10));
    return {
      unary: await say(),
      large: (await unary('Say', Buffer.alloc(1000000, 'x'), 20))[0].length,
      'server stream': await messagesOf(counted, () => {}),
      'client stream': await sum(['1', '2', '3']),
      both: await chat(),
      Fail: await unary('Fail', Buffer.alloc(0), 10),
      Wait: await unary('Wait', Buffer.alloc(0), 2),
      None: await unary('None', Buffer.alloc(0), 10)
    };
  },
  cancel() {
    return new Promise(resolve => {
      const call = client.makeUnaryRequest('/t.Echo/Wait', same, same, Buffer.alloc(0), new grpc.Metadata(), within(30), error => {
        process.stdin.destroy();
        resolve({ cancelled: error.code === grpc.status.CANCELLED });
      });
      process.stdin.once('data', () => call.cancel()); // the server waits
    });
  },
  async limits() {
    return { calls: [await say(), await say()] };
  },
  async rate_limits() {
    const calls = [];
    for (const message of process.argv.slice(4)) {
      calls.push(await new Promise(resolve => {
        client.makeUnaryRequest(rateLimit, same, same, Buffer.from(message, 'hex'), new grpc.Metadata(), within(10),
          (error, bytes) => resolve(error ? [grpc.status[error.code], error.details] : bytes.toString('hex')));
      }));
    }
    return { calls };
  },
  async retries() {
    const began = Date.now();
    return { calls: [await say(), await say()], took: (Date.now() - began) / 1000 };
  }
};

scenarios[scenario]().then(got => {
  console.log(JSON.stringify(got));
  client.close();
});
