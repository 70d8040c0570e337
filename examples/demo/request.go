package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// answer asks one instance for a URL, whatever the name in it resolves to, and
// returns the body and the status.
func answer(ctx context.Context, instance int, url string) (string, int, error) {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(instanceAddress(instance), port))
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: dial, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the demo's certificate is self-signed
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), response.StatusCode, err
}

// verifyTLS checks that an instance proves to be the shop with the certificate
// of the Secret, and has another one for hosts that have none.
func verifyTLS(ctx context.Context, instance int, pool *x509.CertPool) error {
	address := fmt.Sprintf("%s:%d", instanceAddress(instance), httpsPort)
	for _, host := range []struct {
		name   string
		proven bool
	}{{tlsHost, true}, {"blog.example.com", false}} {
		dialer := tls.Dialer{Config: &tls.Config{ServerName: host.name, RootCAs: pool}}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			conn.Close()
		}
		if proven := err == nil; proven != host.proven {
			return fmt.Errorf("TLS to %s on %s: proven %t, want %t: %w", host.name, instanceName(instance), proven, host.proven, err)
		}
	}
	return nil
}

// expect checks that an instance answers a URL with one of the given bodies.
func expect(ctx context.Context, instance int, url string, bodies ...string) error {
	body, status, err := answer(ctx, instance, url)
	if err != nil {
		return fmt.Errorf("GET %s on %s: %w", url, instanceName(instance), err)
	}
	for _, want := range bodies {
		if body == want {
			return nil
		}
	}
	return fmt.Errorf("GET %s on %s: status %d, %q, want one of %q", url, instanceName(instance), status, body, bodies)
}

// everywhere waits until each instance answers a URL with one of the bodies.
func everywhere(ctx context.Context, url string, bodies ...string) error {
	return eventually(ctx, func() error {
		for i := 1; i <= instanceCount; i++ {
			if err := expect(ctx, i, url, bodies...); err != nil {
				return err
			}
		}
		return nil
	})
}

// pollInterval is how often a condition that is waited for is looked at.
const pollInterval = 50 * time.Millisecond

// eventually waits until check succeeds, and returns its last error if ctx
// ends first.
func eventually(ctx context.Context, check func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %w", err)
		case <-ticker.C:
		}
	}
}
