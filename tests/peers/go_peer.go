// go_peer - an HTTP/2 server and client on golang.org/x/net/http2, without TLS.
//
//	go_peer server          prints its address
//	go_peer client URL WHAT sends requests; exits with status 1 and a message if one fails
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
)

const large = 64 << 20

var content = bytes.Repeat([]byte("weir"), 16<<10)

// A reader of `left` bytes.
type source struct{ left int }

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, content)
	if n > s.left {
		n = s.left
	}
	s.left -= n
	return n, nil
}

// Reads to the end in pieces of `size` bytes; the buffer of io.Copy has 32 KiB.
func count(r io.Reader, size int) (total int, err error) {
	buffer := make([]byte, size)
	for {
		n, err := r.Read(buffer)
		total += n
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func number(r *http.Request, name string, otherwise int) int {
	if n, err := strconv.Atoi(r.URL.Query().Get(name)); err == nil {
		return n
	}
	return otherwise
}

func serve(w http.ResponseWriter, r *http.Request) {
	switch path.Dir(r.URL.Path) {
	case "/bytes":
		n, _ := strconv.Atoi(path.Base(r.URL.Path))
		w.Header().Set("Content-Length", strconv.Itoa(n))
		io.Copy(w, &source{n})
		return
	}
	switch r.URL.Path {
	case "/count":
		time.Sleep(time.Duration(number(r, "late", 0)) * time.Millisecond)
		n, err := count(r.Body, number(r, "piece", 32<<10))
		fmt.Fprint(w, n, err)
	case "/copy":
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		buffer := make([]byte, 32<<10)
		for {
			n, err := r.Body.Read(buffer)
			w.Write(buffer[:n])
			w.(http.Flusher).Flush()
			if err != nil {
				return
			}
		}
	case "/early":
		w.WriteHeader(403)
	default:
		w.WriteHeader(404)
	}
}

func server() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on %s\n", listener.Addr())
	log.Fatal(http.Serve(listener, h2c.NewHandler(http.HandlerFunc(serve), &http2.Server{})))
}

var (
	client = &http.Client{Transport: &http2.Transport{AllowHTTP: true,
		DialTLSContext: func(_ context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
			return net.Dial(network, address)
		}}}
	base string
)

// Runs `times` calls, `parallel` at once.
func repeat(times, parallel int, call func() error) error {
	var all sync.WaitGroup
	failures := make(chan error, times)
	slots := make(chan bool, parallel)
	for i := 0; i < times; i++ {
		all.Add(1)
		slots <- true
		go func() {
			defer all.Done()
			if err := call(); err != nil {
				failures <- err
			}
			<-slots
		}()
	}
	all.Wait()
	if n := len(failures); n > 0 {
		return fmt.Errorf("%d of %d failed: %w", n, times, <-failures)
	}
	return nil
}

func get(target string, piece int, late time.Duration) error {
	response, err := client.Get(base + target)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	time.Sleep(late)
	n, err := count(response.Body, piece)
	if size, _ := strconv.Atoi(path.Base(target)); err == nil && n != size {
		return fmt.Errorf("%d bytes, status %d", n, response.StatusCode)
	}
	return err
}

func post(target string, size int) error {
	response, err := client.Post(base+target, "text/plain", &source{size})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && string(body) != strconv.Itoa(size)+" <nil>" {
		return fmt.Errorf("%s: %d %q", target, response.StatusCode, body)
	}
	return err
}

func both() error { // content in both directions at the same time
	response, err := client.Post(base+"/copy", "text/plain", &source{large})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := count(response.Body, 32<<10)
	if err == nil && n != large {
		return fmt.Errorf("%d bytes", n)
	}
	return err
}

func unread() error { // RST_STREAM, since the program closes before the end
	response, err := client.Get(base + "/bytes/10000000")
	if err != nil {
		return err
	}
	time.Sleep(15 * time.Millisecond)
	return response.Body.Close()
}

func cancelled() error { // RST_STREAM, and a PING of newer versions
	during, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	request, _ := http.NewRequestWithContext(during, "POST", base+"/count?late=100", &source{100})
	response, err := client.Do(request)
	if err == nil {
		response.Body.Close()
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

func early() error { // the response comes before the end of the request
	response, err := client.Post(base+"/early", "text/plain", &source{1 << 20})
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.StatusCode != 403 {
		return errors.New(response.Status)
	}
	return nil
}

var scenarios = map[string]func() error{
	"download": func() error {
		return repeat(4, 2, func() error { return get("/bytes/67108864", 32<<10, 0) })
	},
	"download-small-reads": func() error {
		return repeat(1, 1, func() error { return get("/bytes/67108864", 512, 0) })
	},
	"download-late": func() error {
		return repeat(10, 10, func() error { return get("/bytes/67108864", 4096, time.Second) })
	},
	"small": func() error {
		return repeat(50000, 90, func() error { return get("/bytes/100", 512, 0) })
	},
	"upload": func() error {
		return repeat(4, 2, func() error { return post("/count", large) })
	},
	"upload-small-reads": func() error { return post("/count?piece=512", large) },
	"upload-late":        func() error { return repeat(5, 5, func() error { return post("/count?piece=4096&late=1000", large) }) },
	"upload-small": func() error {
		return repeat(50000, 90, func() error { return post("/count?piece=512", 1500) })
	},
	"both":      func() error { return repeat(4, 2, both) },
	"unread":    func() error { return repeat(200, 1, unread) },
	"cancelled": func() error { return repeat(200, 2, cancelled) },
	"early":     func() error { return repeat(200, 2, early) },
}

func main() {
	if len(os.Args) == 4 {
		base = os.Args[2]
		if err := scenarios[os.Args[3]](); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	} else {
		server()
	}
}
