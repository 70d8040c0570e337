package testscripts

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// pod is a server that answers every request with its name, with TLS if the client begins so. It also talks:
// see the command talk.
type pod struct {
	name, address string
	server        *http.Server
	echo          *grpc.Server
	waiting       *waiting
}

// pod returns the pod with a name. It starts the pod if necessary.
func (w *world) pod(name string) (*pod, error) {
	if p, ok := w.pods[name]; ok {
		return p, nil
	}
	ip := w.network.podIP(1 + len(w.pods))
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", ip, w.network.Port))
	if err != nil {
		return nil, fmt.Errorf("start pod %s: %w", name, err)
	}
	p := &pod{name: name, address: ip, waiting: w.waiting, echo: grpc.NewServer()}
	p.echo.RegisterService(&echoService, p)
	p.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: p, Protocols: new(http.Protocols)}
	p.server.Protocols.SetHTTP1(true)
	p.server.Protocols.SetUnencryptedHTTP2(true)
	certificate, err := podCertificate()
	if err != nil {
		return nil, err
	}
	go p.server.Serve(eitherListener{listener, certificate}) //nolint:errcheck // it ends with the world
	w.pods[name] = p
	return p, nil
}

// endPods ends pods as a kubelet would: they finish their requests.
func endPods(w *world, _ *testscript.TestScript, args []string) error {
	for _, name := range podNames(args) {
		p, known := w.pods[name]
		if !known {
			return fmt.Errorf("%w: there is no pod %s", errUsage, name)
		}
		ctx, cancel := context.WithTimeout(context.Background(), talkTimeout)
		err := p.server.Shutdown(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("end pod %s: %w", name, err)
		}
	}
	return nil
}

// ServeHTTP answers with the pod's name, or talks.
func (p *pod) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		p.echo.ServeHTTP(w, r)
	case r.Header.Get("Upgrade") != "":
		websocket.Server{Handler: p.echoMessages}.ServeHTTP(w, r) // without a check of the origin
	case r.URL.Query().Has("poll"):
		select {
		case text := <-p.waiting.text(r.URL.Query().Get("poll")):
			fmt.Fprint(w, p.name+": "+text)
		case <-r.Context().Done():
		}
	default:
		fmt.Fprint(w, p.name)
	}
}

// echoMessages answers each message of a WebSocket.
func (p *pod) echoMessages(conn *websocket.Conn) {
	for {
		var text string
		if websocket.Message.Receive(conn, &text) != nil || websocket.Message.Send(conn, p.name+": "+text) != nil {
			return
		}
	}
}

// echoService answers each message of a gRPC stream.
var echoService = grpc.ServiceDesc{
	ServiceName: "story.Echo", HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Talk", ServerStreams: true, ClientStreams: true, Handler: func(server any, stream grpc.ServerStream) error {
		for {
			var message wrapperspb.StringValue
			if err := stream.RecvMsg(&message); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if err := stream.SendMsg(wrapperspb.String(server.(*pod).name + ": " + message.Value)); err != nil {
				return err
			}
		}
	}}},
}

// waiting has the long polls that no pod has answered yet, by name.
type waiting struct {
	mu    sync.Mutex
	texts map[string]chan string
}

// text returns the channel with the answer of a long poll.
func (w *waiting) text(name string) chan string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.texts == nil {
		w.texts = map[string]chan string{}
	}
	if w.texts[name] == nil {
		w.texts[name] = make(chan string, 1)
	}
	return w.texts[name]
}

// podCertificate returns the certificate with which pods prove to be pods. The instances have no other
// certificate like it.
var podCertificate = sync.OnceValues(func() (*tls.Config, error) {
	made, err := newKeyPair([]string{"pod.example.com"})
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{made.certificate.Raw}, PrivateKey: made.private}}}, nil
})

// eitherListener accepts connections with TLS and without on one port.
type eitherListener struct {
	net.Listener
	config *tls.Config
}

func (l eitherListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &eitherConn{Conn: c, config: l.config}, nil
}

// eitherConn finds out from the client's first byte whether it speaks TLS.
type eitherConn struct {
	net.Conn
	config *tls.Config
	begin  sync.Once
	stream io.ReadWriter
}

func (c *eitherConn) Read(b []byte) (int, error) {
	c.begin.Do(c.choose)
	return c.stream.Read(b)
}

func (c *eitherConn) Write(b []byte) (int, error) {
	c.begin.Do(c.choose)
	return c.stream.Write(b)
}

// recordOfHandshake is the first byte of every TLS connection.
const recordOfHandshake = 0x16

func (c *eitherConn) choose() {
	first := make([]byte, 1)
	n, _ := io.ReadFull(c.Conn, first) // the next read returns the error again
	again := &begunConn{c.Conn, io.MultiReader(bytes.NewReader(first[:n]), c.Conn)}
	c.stream = again
	if first[0] == recordOfHandshake {
		c.stream = tls.Server(again, c.config)
	}
}

// begunConn is a connection from which something was read.
type begunConn struct {
	net.Conn
	whole io.Reader
}

func (c *begunConn) Read(b []byte) (int, error) { return c.whole.Read(b) }
