package instance

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
)

// The directory asks the present instances, and does not wait for those that hang.
func TestDirectory(t *testing.T) {
	t.Parallel()
	api := func(answer http.HandlerFunc) string {
		s := httptest.NewServer(answer)
		t.Cleanup(s.Close)
		t.Cleanup(s.CloseClientConnections)
		return s.URL
	}
	good := api(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `[{"name":"s1","address":"10.0.0.1","port":8080,"admin_state":"ready","operational_state":"up"}]`)
	})
	hangs := api(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	})
	fails := api(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	d := &Directory{}
	c := New(Options{PollInterval: time.Hour, ReloadTimeout: time.Minute, Directory: d}, nil)
	for name, url := range map[string]string{"good": good, "hangs": hangs, "fails": fails, "left": good} {
		if _, err := c.join(Join{Ref: Ref{Name: name}, Spec: fleet.Instance{Name: name, URL: url}}); err != nil {
			t.Fatal(err)
		}
	}
	c.leave("left")
	for patience := time.Second; ; patience *= 2 { // for a busy machine
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		found := d.Servers(ctx, "web")
		cancel()
		if len(found) == 1 && len(found["good"]) == 1 && found["good"][0].Address == "10.0.0.1" {
			break
		}
		if len(found) > 0 || patience > time.Minute {
			t.Fatalf("got %+v", found)
		}
	}
	New(Options{Directory: d}, nil)
	if found := d.Servers(t.Context(), "web"); len(found) != 0 {
		t.Errorf("whom it asked before another term: %+v", found)
	}
}
