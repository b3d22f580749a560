// node_peer - an HTTP/2 server and client on Node's http2, without TLS.
//
//   node node_peer.js server          prints its address
//   node node_peer.js client URL WHAT sends requests; exits with status 1 and a message if one fails
'use strict';

const http2 = require('http2');

const LARGE = 64 << 20;
const content = Buffer.alloc(64 << 10, 'weir');

// Writes `size` bytes to the stream and ends it.
function writeAll(stream, size) {
    let left = size;
    function more() {
        while (left > 0) {
            const piece = content.subarray(0, Math.min(left, content.length));
            left -= piece.length;
            if (!stream.write(piece) && left > 0) {
                stream.once('drain', more);
                return;
            }
        }
        stream.end();
    }
    more();
}

function countAll(stream, over) {
    let count = 0;
    stream.on('data', (piece) => { count += piece.length; });
    stream.on('end', () => over(count));
}

// --- the server ---

function serve(stream, headers) {
    const path = new URL(headers[':path'], 'http://peer');
    const late = Number(path.searchParams.get('late') || 0);
    stream.on('error', () => {});
    if (path.pathname.startsWith('/bytes/')) {
        const size = Number(path.pathname.slice(7));
        stream.respond({':status': 200, 'content-length': size});
        writeAll(stream, size);
    } else if (path.pathname === '/count') {
        setTimeout(() => countAll(stream, (count) => {
            stream.respond({':status': 200});
            stream.end(`${count} <nil>`);
        }), late);
    } else if (path.pathname === '/copy') {
        stream.respond({':status': 200});
        stream.pipe(stream);
    } else {
        stream.respond({':status': path.pathname === '/early' ? 403 : 404}, {endStream: true});
    }
}

function server() {
    const options = process.env.PADDING ? {paddingStrategy: http2.constants.PADDING_STRATEGY_ALIGNED} : {};
    const peer = http2.createServer(options);
    peer.on('stream', serve);
    peer.listen(0, '127.0.0.1', () => console.log(`listening on 127.0.0.1:${peer.address().port}`));
}

// --- the client ---

let session;

function request(path, size, late, check) {
    return new Promise((resolve, reject) => {
        const stream = session.request({':method': size === null ? 'GET' : 'POST', ':path': path});
        let status;
        stream.on('error', reject);
        stream.on('response', (headers) => { status = headers[':status']; });
        stream.on('response', () => setTimeout(() => {
            let body = '', count = 0;
            stream.on('data', (piece) => {
                count += piece.length;
                if (count < 100) body += piece;
            });
            stream.on('end', () => check(status, count, body) ? resolve()
                : reject(new Error(`${path}: status ${status}, ${count} bytes, ${body}`)));
        }, late));
        stream.on('close', () => reject(new Error(`${path}: closed, code ${stream.rstCode}`)));
        if (size === null) stream.end(); else writeAll(stream, size);
    });
}

const get = (size, late = 0) => request(`/bytes/${size}`, null, late, (status, count) => status === 200 && count === size);
const post = (size, path = '/count') => request(path, size, 0, (status, count, body) => status === 200 && body === `${size} <nil>`);
const both = () => request('/copy', LARGE, 0, (status, count) => status === 200 && count === LARGE);

// Closes the stream before the end of the response.
function cancel(path, size, after) {
    return new Promise((resolve, reject) => {
        const stream = session.request({':method': size === null ? 'GET' : 'POST', ':path': path});
        stream.on('error', reject);
        stream.on('close', resolve);
        setTimeout(() => stream.close(http2.constants.NGHTTP2_CANCEL), after);
        if (size === null) stream.end(); else writeAll(stream, size);
    });
}

const early = () => new Promise((resolve, reject) => {
    const stream = session.request({':method': 'POST', ':path': '/early'});
    let status;
    stream.on('error', reject);
    stream.on('response', (headers) => { status = headers[':status']; });
    stream.on('close', () => status === 403 ? resolve() : reject(new Error(`status ${status}`)));
    stream.resume();
    writeAll(stream, 1 << 20);
});

async function repeat(times, parallel, call) {
    let left = times;
    async function next() {
        while (left-- > 0) await call();
    }
    await Promise.all(Array.from({length: parallel}, next));
}

const scenarios = {
    'download': () => repeat(4, 2, () => get(LARGE)),
    'download-late': () => repeat(10, 10, () => get(LARGE, 1000)),
    'small': () => repeat(30000, 90, () => get(100)),
    'upload': () => repeat(4, 2, () => post(LARGE)),
    'upload-late': () => repeat(5, 5, () => post(LARGE, '/count?late=1000')),
    'upload-small': () => repeat(30000, 90, () => post(1500)),
    'both': () => repeat(4, 2, both),
    'unread': () => repeat(200, 1, () => cancel('/bytes/10000000', null, 15)),
    'cancelled': () => repeat(200, 2, () => cancel('/count?late=100', 100, 50)),
    'early': () => repeat(50, 2, early), // with 200, Node gives up also with a Go server and no proxy
};

if (process.argv[2] === 'server') {
    server();
} else {
    session = http2.connect(process.argv[3]);
    session.on('error', (error) => { console.log(error.message); process.exit(1); });
    scenarios[process.argv[4]]().then(() => session.close(), (error) => { console.log(error.message); process.exit(1); });
}
