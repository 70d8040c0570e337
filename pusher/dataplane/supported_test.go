package dataplane

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestVersionsThatAreWorkedWith(t *testing.T) {
	t.Parallel()
	tests := []struct {
		what, version string
		check         func(string) error
		want          string // "" is none
	}{
		{"api", "v3.2.5 1a2b3c4", checkAPI, ""},
		{"api", "v3.4.2 1a2b3c4", checkAPI, ""},
		{"api", "v3.10.0", checkAPI, ""},
		{"api, of which a build from source says nothing", " dev.dirty", checkAPI, ""},
		{"api", "v3.1.9 1a2b3c4", checkAPI, "the Dataplane API is v3.1.9 1a2b3c4: want 3.2 or a later 3"},
		{"api", "v2.9.2 1a2b3c4", checkAPI, "the Dataplane API is v2.9.2"},
		{"api", "v4.0.0", checkAPI, "the Dataplane API is v4.0.0"},
		{"haproxy", "2.6.12-1+deb12u1", CheckHAProxy, ""},
		{"haproxy", "3.2-dev1", CheckHAProxy, ""},
		{"haproxy", "10.0.0", CheckHAProxy, ""},
		{"haproxy that does not say", "", CheckHAProxy, ""},
		{"haproxy", "2.5.14-1a2b3c4", CheckHAProxy, "HAProxy is 2.5.14-1a2b3c4: want 2.6 or later"},
		{"haproxy", "1.8.30", CheckHAProxy, "HAProxy is 1.8.30"},
	}
	for _, test := range tests {
		err := test.check(test.version)
		if unsupported := new(UnsupportedError); err != nil && !errors.As(err, unsupported) {
			t.Errorf("%s %q: %v is no UnsupportedError", test.what, test.version, err)
		}
		if (err == nil) != (test.want == "") || (err != nil && !strings.HasPrefix(err.Error(), test.want)) {
			t.Errorf("%s %q: %v, want %q", test.what, test.version, err, test.want)
		}
	}
}

// An API of version 2 knows no path of version 3.
func TestAPIOfAnotherMajorVersion(t *testing.T) {
	t.Parallel()
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":404,"message":"path ` + r.URL.Path + ` was not found"}`))
	}))
	t.Cleanup(old.Close)
	c, err := New(Options{URL: old.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Supported(t.Context()); !errors.As(err, new(UnsupportedError)) {
		t.Errorf("Supported is %v, want an UnsupportedError", err)
	}
}
