package testscripts

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// askTimeout bounds a request, so that await has time for another.
const askTimeout = patience / 3

// answer is the result of a request.
type answer struct {
	status int
	body   string
}

// is reports whether the answer is as wanted: a status of three digits, or the body of a good answer.
func (a answer) is(want string) bool {
	if status, err := strconv.Atoi(want); err == nil {
		return a.status == status
	}
	return a.status == http.StatusOK && a.body == want
}

// get requests a URL from the instance, whatever the name in it would resolve to.
func (w *world) get(i *instance, url string) (answer, error) { return w.ask(i, http.MethodGet, url) }

func (w *world) ask(i *instance, method, url string) (answer, error) {
	client := &http.Client{
		Timeout:       askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: w.dialer(i), DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the command presents checks certificates
		},
	}
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		return answer{}, err
	}
	return do(client, request)
}

func fetch(client *http.Client, url string) (answer, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return answer{}, err
	}
	return do(client, request)
}

func do(client *http.Client, request *http.Request) (answer, error) {
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(body)}, err
}

// everywhere checks the instances one after another.
func (w *world) everywhere(check func(*instance) error) error {
	if len(w.instances) == 0 {
		return fmt.Errorf("%w: there are no instances", errUsage)
	}
	for _, i := range w.instances {
		if err := check(i); err != nil {
			return fmt.Errorf("%s: %w", i.name, err)
		}
	}
	return nil
}

func getURL(w *world, _ *testscript.TestScript, args []string) error {
	return askURL(w, http.MethodGet, args)
}

func postURL(w *world, _ *testscript.TestScript, args []string) error {
	return askURL(w, http.MethodPost, args)
}

func askURL(w *world, method string, args []string) error {
	only := ""
	if len(args) > 2 && args[0] == "-on" {
		only, args = args[1], args[2:]
		if _, err := w.instance(only); err != nil {
			return err
		}
	}
	if len(args) < 2 {
		return errUsage
	}
	return w.everywhere(func(i *instance) error {
		if only != "" && i.name != only {
			return nil
		}
		got, err := w.ask(i, method, args[0])
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(args[1:], got.is) {
			return fmt.Errorf("%s %s: status %d, %q, want one of %q", method, args[0], got.status, got.body, args[1:])
		}
		return nil
	})
}

func spreadURL(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	want := slices.Sorted(slices.Values(podNames(args[1:])))
	return w.everywhere(func(i *instance) error {
		var seen []string
		for range 4 * len(want) {
			got, err := w.get(i, args[0])
			if err != nil {
				return err
			}
			seen = append(seen, got.body)
		}
		slices.Sort(seen)
		if seen = slices.Compact(seen); !slices.Equal(seen, want) {
			return fmt.Errorf("GET %s is answered by %q, want %q", args[0], seen, want)
		}
		return nil
	})
}

func presentsCertificate(w *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	want, known := w.certificates[args[1]]
	if !known && args[1] != "fallback" {
		return fmt.Errorf("%w: there is no certificate of %s", errUsage, args[1])
	}
	return w.everywhere(func(i *instance) error {
		got, err := w.handshake(i, args[0])
		switch {
		case err != nil:
			return err
		case known && !bytes.Equal(got.Raw, want.Raw):
			return fmt.Errorf("%s is proven by another certificate than %s: %s, serial %s", args[0], args[1], got.Subject, got.SerialNumber)
		case !known && !strings.Contains(got.Subject.CommonName, "fallback"):
			return fmt.Errorf("%s is proven by %s", args[0], got.Subject)
		}
		return nil
	})
}

// handshake returns the certificate that a client of an instance gets for a host.
func (w *world) handshake(i *instance, host string) (*x509.Certificate, error) {
	dialer := tls.Dialer{Config: &tls.Config{ServerName: host, InsecureSkipVerify: true}} // it is compared as a whole
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", fmt.Sprintf("%s:%d", i.ip, w.network.HTTPS))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func answersURL(_ *world, _ *testscript.TestScript, args []string) error {
	if len(args) != 2 && len(args) != 3 {
		return errUsage
	}
	got, err := fetch(&http.Client{Timeout: askTimeout}, args[0])
	if err != nil {
		return err
	}
	if strconv.Itoa(got.status) != args[1] {
		return fmt.Errorf("GET %s: status %d, %q, want %s", args[0], got.status, got.body, args[1])
	}
	if len(args) == 3 {
		return match(args[2], got.body)
	}
	return nil
}
