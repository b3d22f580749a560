// A gRPC server (@grpc/grpc-js) with the methods of tests/integration/grpc_server.py. Messages are plain bytes. It prints
// where it listens, and the calls that were cancelled.
'use strict';

const grpc = require('@grpc/grpc-js');

function say(call, reply) {
  const trailing = new grpc.Metadata();
  trailing.set('x-trailer', '1');
  trailing.set('x-bin', Buffer.from([0, 1]));
  reply(null, Buffer.concat([call.request, Buffer.from('!')]), trailing);
}

function count(call) {
  for (let i = 0; i < Number(call.request); i++) call.write(Buffer.from(String(i)));
  call.end();
}

function total(call, reply) {
  let sum = 0;
  call.on('data', message => { sum += Number(message); });
  call.on('end', () => reply(null, Buffer.from(String(sum))));
}

function chat(call) {
  call.on('data', message => call.write(Buffer.from(message.toString().toUpperCase())));
  call.on('end', () => call.end());
}

function fail(call, reply) {
  reply({ code: grpc.status.NOT_FOUND, details: 'none: 100 % \u00e4' });
}

function wait(call) { // until the call is cancelled
  console.log('waiting');
  call.on('cancelled', () => console.log('cancelled'));
}

const same = bytes => bytes;
const service = {};
for (const [name, handler, requestStream, responseStream] of [
  ['Say', say, false, false], ['Fail', fail, false, false], ['Wait', wait, false, false],
  ['Count', count, false, true], ['Sum', total, true, false], ['Chat', chat, true, true]]) {
  service[name] = {
    path: '/t.Echo/' + name, requestStream, responseStream, handler, requestSerialize: same, requestDeserialize: same,
    responseSerialize: same, responseDeserialize: same };
}
const server = new grpc.Server();
server.addService(service, Object.fromEntries(Object.entries(service).map(([name, method]) => [name, method.handler])));
server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log('listening on 127.0.0.1:' + port);
});
