package testscripts

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// talkTimeout bounds the opening of a conversation, and each answer. A busy machine takes seconds for either. A
// closed connection fails at once.
const talkTimeout = time.Minute

// conversation is a connection that stays open. The pod at the other end answers each text.
type conversation interface {
	say(text string) (answer string, err error)
	close()
}

// dialer connects to one instance, whatever name the address has.
func (w *world) dialer(i *instance) func(ctx context.Context, network, address string) (net.Conn, error) {
	ports := map[string]int{"80": w.network.HTTP, "443": w.network.HTTPS, "8080": w.network.Partner, "8081": w.network.Second}
	return func(ctx context.Context, _, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", i.ip, ports[port]))
	}
}

// startTalk opens a conversation with a pod, through the first instance.
func startTalk(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 3 || len(w.instances) == 0 || w.talks[args[0]] != nil {
		return errUsage
	}
	open, ok := map[string]func(*world, string, string) (conversation, error){
		"websocket": openWebSocket, "poll": openPoll, "grpc": openGRPC,
	}[args[1]]
	if !ok {
		return errUsage
	}
	talk, err := open(w, args[0], args[2])
	if err != nil {
		return fmt.Errorf("talk by %s: %w", args[1], err)
	}
	w.talks[args[0]] = talk
	return nil
}

// sayText sends a text in a conversation, and compares the answer.
func sayText(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 3 || w.talks[args[0]] == nil {
		return errUsage
	}
	answer, err := w.talks[args[0]].say(args[1])
	if err != nil {
		return fmt.Errorf("%w: %s was cut off: %w", errProgram, args[0], err)
	}
	if ok, err := regexp.MatchString("^(?:"+args[2]+"): "+regexp.QuoteMeta(args[1])+"$", answer); err != nil || !ok {
		return fmt.Errorf("%s was answered %q", args[0], answer)
	}
	return nil
}

type webSocket struct{ *websocket.Conn }

func openWebSocket(w *world, _, location string) (conversation, error) {
	config, err := websocket.NewConfig(location, "http://origin.example")
	if err != nil {
		return nil, err
	}
	port := config.Location.Port()
	if port == "" {
		port = map[string]string{"ws": "80", "wss": "443"}[config.Location.Scheme]
	}
	ctx, cancel := context.WithTimeout(context.Background(), talkTimeout)
	defer cancel()
	conn, err := w.dialer(w.instances[0])(ctx, "tcp", net.JoinHostPort(config.Location.Hostname(), port))
	if err != nil {
		return nil, err
	}
	if config.Location.Scheme == "wss" {
		conn = tls.Client(conn, &tls.Config{ServerName: config.Location.Hostname(), InsecureSkipVerify: true})
	}
	if err := conn.SetDeadline(time.Now().Add(talkTimeout)); err != nil {
		return nil, err
	}
	socket, err := websocket.NewClient(config, conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return webSocket{socket}, nil
}

func (s webSocket) say(text string) (answer string, err error) {
	if err := s.SetDeadline(time.Now().Add(talkTimeout)); err != nil {
		return "", err
	}
	if err := websocket.Message.Send(s.Conn, text); err != nil {
		return "", err
	}
	err = websocket.Message.Receive(s.Conn, &answer)
	return answer, err
}

func (s webSocket) close() { s.Close() }

// longPoll is a request that the pod answers when a text is sent.
type longPoll struct {
	texts  chan string
	answer chan answer
	failed chan error
	cancel context.CancelFunc
}

func openPoll(w *world, name, location string) (conversation, error) {
	u, err := url.Parse(location)
	if err != nil {
		return nil, err
	}
	u.RawQuery = url.Values{"poll": {name}}.Encode()
	ctx, cancel := context.WithCancel(context.Background())
	p := &longPoll{texts: w.waiting.text(name), answer: make(chan answer, 1), failed: make(chan error, 1), cancel: cancel}
	client := &http.Client{Transport: &http.Transport{
		DialContext: w.dialer(w.instances[0]), TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		got, err := do(client, request)
		if err != nil {
			p.failed <- err
			return
		}
		p.answer <- got
	}()
	return p, nil
}

func (p *longPoll) say(text string) (string, error) {
	p.texts <- text
	select {
	case got := <-p.answer:
		return got.body, nil
	case err := <-p.failed:
		return "", err
	case <-time.After(talkTimeout):
		return "", errors.New("no answer")
	}
}

func (p *longPoll) close() { p.cancel() }

// stream is a gRPC stream.
type stream struct {
	grpc.ClientStream
	conn   *grpc.ClientConn
	cancel context.CancelFunc
}

func openGRPC(w *world, _, host string) (conversation, error) {
	dial := w.dialer(w.instances[0])
	conn, err := grpc.NewClient("passthrough:///"+host+":443",
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	opened, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/story.Echo/Talk")
	if err != nil {
		cancel()
		return nil, errors.Join(err, conn.Close())
	}
	return &stream{opened, conn, cancel}, nil
}

func (s *stream) say(text string) (string, error) {
	timer := time.AfterFunc(talkTimeout, s.cancel)
	defer timer.Stop()
	if err := s.SendMsg(wrapperspb.String(text)); err != nil {
		return "", err
	}
	var message wrapperspb.StringValue
	err := s.RecvMsg(&message)
	return message.Value, err
}

func (s *stream) close() {
	s.cancel()
	s.conn.Close()
}
