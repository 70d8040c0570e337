package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// Expire restarts the API server such that no watch can go on from where it was:
// all versions that clients have seen are gone, and asking for what came after one
// of them is answered with 410.
//
// The API server starts with an empty history at etcd's present revision. That is
// moved on, past all that clients know, and everything before it is compacted, so
// that etcd does not help out either.
func (s *Server) Expire(tb testing.TB) {
	tb.Helper()
	must(tb, s.ExpireAPI(tb.Context()))
}

// ExpireAPI is Expire where there is no test.
func (s *Server) ExpireAPI(ctx context.Context) error {
	if err := s.StopAPI(); err != nil {
		return err
	}
	if err := s.compacted(ctx); err != nil {
		return err
	}
	return s.ResumeAPI()
}

// compacted is compact, again and again where etcd is slow: it gives up on its own.
func (s *Server) compacted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.compact(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// compact makes etcd forget all revisions but a new one.
func (s *Server) compact(ctx context.Context) error {
	var put struct {
		Header struct{ Revision string }
	}
	for range 2 { // a watch from the revision just before is still served
		if err := s.etcd(ctx, "put", map[string]any{"key": []byte("kubetest/expire"), "value": []byte{}}, &put); err != nil {
			return err
		}
	}
	return s.etcd(ctx, "compaction", map[string]any{"revision": put.Header.Revision, "physical": true}, &struct{}{})
}

// etcd calls its JSON interface, in which bytes are base64.
func (s *Server) etcd(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	url := s.env.ControlPlane.Etcd.URL.JoinPath("v3", "kv", method).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("call etcd: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		return fmt.Errorf("call etcd's %s: %s: %s", method, response.Status, said)
	}
	return json.NewDecoder(response.Body).Decode(out)
}
