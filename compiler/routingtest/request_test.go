package routingtest

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// echo starts a server that answers every request with its name, and returns its port.
func echo(t *testing.T, name string) int {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Echo", name) }))
	s.Config.DisableGeneralOptionsHandler = true
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// answer returns the name of the echo server that answered, or the status.
func answer(r *http.Response) string {
	if name := r.Header.Get("X-Echo"); name != "" && r.StatusCode == http.StatusOK {
		return name
	}
	return strconv.Itoa(r.StatusCode)
}

// raw sends bytes and returns the answer.
func raw(t *testing.T, address, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("read the response to %q: %v", request, err)
	}
	response.Body.Close()
	return answer(response)
}

// http11 sends a request over HTTP/1.1, with a literal host and target.
func (e edge) http11(t *testing.T, method, host, target string) string {
	t.Helper()
	return raw(t, e.http, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", method, target, host))
}

// http2 sends a request over HTTP/2 and TLS, with host as :authority and as SNI.
func (e edge) http2(t *testing.T, method, host, target string) string {
	t.Helper()
	cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, ServerName: strings.Trim(strings.Split(host, ":")[0], ".[]")}
	c, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", e.https)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := askHTTP2(c, method, host, target)
	if err != nil {
		t.Fatalf("%s %s of %s over HTTP/2: %v", method, target, host, err)
	}
	return got
}

// askHTTP2 sends one request and returns the answer. It writes the frames itself, since a library would not
// send every path literally.
func askHTTP2(c net.Conn, method, host, target string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		return "", err
	}
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := sendHTTP2(c, framer, true, []string{":method", method, ":scheme", "https", ":authority", host, ":path", target}); err != nil {
		return "", err
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return "", err
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			return answerHTTP2(f), nil
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return f.Header().Type.String(), nil
		}
	}
}

// http2Body sends a POST without a length over HTTP/2, and returns the answer.
func (e edge) http2Body(t *testing.T, host, body string) string {
	t.Helper()
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", e.https)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(deadline)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := sendHTTP2(c, framer, false, []string{":method", "POST", ":scheme", "https", ":authority", host, ":path", "/"}); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteData(1, true, []byte(body)); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			return answerHTTP2(f)
		case *http2.RSTStreamFrame:
			return f.Header().Type.String()
		}
	}
}

// sendHTTP2 sends the preface and one request. whole means that the request has no body.
func sendHTTP2(c net.Conn, framer *http2.Framer, whole bool, fields []string) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		if err := encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
		return err
	}
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: whole, EndHeaders: true})
}

func answerHTTP2(f *http2.MetaHeadersFrame) string {
	status := f.PseudoValue("status")
	for _, field := range f.RegularFields() {
		if field.Name == "x-echo" && status == "200" {
			return field.Value
		}
	}
	return status
}

// certificate returns the common name of the certificate that is served for a name.
func (e edge) certificate(t *testing.T, serverName string) string {
	t.Helper()
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, ServerName: serverName}}).DialContext(t.Context(), "tcp", e.https)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
}

// selfSigned returns a self-signed certificate for a name, and its key, in PEM.
func selfSigned(tb testing.TB, name string) []byte {
	tb.Helper()
	certificate, key := keyPair(tb, name)
	return append(certificate, key...)
}

func keyPair(tb testing.TB, name string) (certificate, key []byte) {
	tb.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		tb.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	block := func(kind string, b []byte) []byte {
		return bytes.Clone(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", encoded)
}
