package dataplanetest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Fault is a failure to inject. Each of the functions that return one names what
// goes wrong; On and Times say where and how often.
type Fault struct {
	kind   faultKind
	method string
	path   string
	times  int // 0: until cleared
	status int
	delay  time.Duration
	log    string
}

type faultKind int

const (
	noFault faultKind = iota
	answer
	hang
	slow
	cutBefore
	cutAfter
	failReload
	masterSocketGone
	diskFull
	certificateReload
	mapChangeLost
	addressLate
)

// Answer has requests answered with a status and the body that goes with it, and
// nothing done. 401, 409, 429 and 500 look as the API's own; others as of a proxy
// in between.
func Answer(status int) Fault { return Fault{kind: answer, status: status} }

// Hang leaves requests without an answer until the client gives up.
func Hang() Fault { return Fault{kind: hang} }

// Slow delays requests before anything is done.
func Slow(d time.Duration) Fault { return Fault{kind: slow, delay: d} }

// CutBefore closes the connection before anything is done.
func CutBefore() Fault { return Fault{kind: cutBefore} }

// CutAfter does all that was asked for and closes the connection instead of
// answering.
func CutAfter() Fault { return Fault{kind: cutAfter} }

// FailReload fails the reload that the request asks for, be it forced or due
// later, without HAProxy having a say; log is what it would have said.
func FailReload(log string) Fault { return Fault{kind: failReload, log: log} }

// MasterSocketGone has the API find no master socket, also for the reload that
// the request asks for.
func MasterSocketGone() Fault { return Fault{kind: masterSocketGone} }

// DiskFull fails writes of configurations and files for lack of space.
func DiskFull() Fault { return Fault{kind: diskFull} }

// CertificateReload has a certificate go to disk only and a reload scheduled, as
// when the worker refuses it.
func CertificateReload() Fault { return Fault{kind: certificateReload} }

// CertificateReloadFails is CertificateReload with a reload that fails when it is due;
// log is what HAProxy would have said.
func CertificateReloadFails(log string) Fault { return Fault{kind: certificateReload, log: log} }

// MapChangeLost has changes of maps in the worker answered as if they were made.
func MapChangeLost() Fault { return Fault{kind: mapChangeLost} }

// AddressLate has addresses of servers acknowledged at once, and set in the worker after a
// time, as HAProxy 3.0 and later do on a busy machine.
func AddressLate(d time.Duration) Fault { return Fault{kind: addressLate, delay: d} }

// On limits the fault to a method, "" for any, and to paths that begin so. The
// path is the one after /v3/services/haproxy, such as "/configuration/raw", or the
// whole one.
func (f Fault) On(method, path string) Fault {
	f.method, f.path = method, path
	return f
}

// Times ends the fault after n requests. Without it, it stays until cleared.
func (f Fault) Times(n int) Fault {
	f.times = n
	return f
}

// inside reports whether the fault happens inside of the API, and not on the way to it.
func (f Fault) inside() bool { return f.kind >= failReload }

func (f Fault) matches(method, path string) bool {
	return (f.method == "" || f.method == method) &&
		(strings.HasPrefix(path, f.path) || strings.HasPrefix(path, servicePath+f.path))
}

// faults is the list of failures that are to come.
type faults struct {
	mu   sync.Mutex
	list []Fault
}

func (fs *faults) add(list ...Fault) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = append(fs.list, list...)
}

func (fs *faults) clear() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = nil
}

// take returns the first fault for a request and counts it.
func (fs *faults) take(method, path string) Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for i, f := range fs.list {
		if !f.matches(method, path) {
			continue
		}
		switch f.times {
		case 0:
		case 1:
			fs.list = append(fs.list[:i:i], fs.list[i+1:]...)
		default:
			fs.list[i].times--
		}
		return f
	}
	return Fault{}
}

type faultKey struct{}

func withFault(ctx context.Context, f Fault) context.Context {
	return context.WithValue(ctx, faultKey{}, f)
}

// faultOf returns the fault that goes with the request.
func faultOf(ctx context.Context) Fault {
	f, _ := ctx.Value(faultKey{}).(Fault)
	return f
}

// serve handles the faults that replace or surround the whole request, and hands
// the others on to the code they concern.
func (f Fault) serve(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	switch f.kind {
	case answer:
		f.answer(w)
	case hang:
		_, _ = io.Copy(io.Discard, r.Body) // only then is the client's leaving seen
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case slow:
		select {
		case <-time.After(f.delay):
			next(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	case cutBefore:
		panic(http.ErrAbortHandler)
	case cutAfter:
		next(&discarded{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	default:
		next(w, r.WithContext(withFault(r.Context(), f)))
	}
}

func (f Fault) answer(w http.ResponseWriter) {
	switch f.status {
	case http.StatusUnauthorized:
		w.Header().Set("Www-Authenticate", `Basic realm="API"`)
		writeError(w, f.status, "unauthorized")
	case http.StatusConflict:
		writeError(w, f.status, "version mismatch: version in configuration file is 3, given version is 2")
	case http.StatusTooManyRequests:
		writeError(w, f.status, "cannot start a new transaction, reached the maximum amount of 20 active transactions available")
	case http.StatusInternalServerError:
		writeError(w, f.status, "general error")
	default:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.status)
		_, _ = w.Write([]byte("<html><body><h1>" + http.StatusText(f.status) + "</h1></body></html>\n"))
	}
}

// discarded takes an answer that nobody will see.
type discarded struct{ header http.Header }

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) Write(b []byte) (int, error) { return len(b), nil }
func (d *discarded) WriteHeader(int)             {}
