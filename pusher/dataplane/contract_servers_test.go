//nolint:thelper // the checks are tests: a failure has to name their own lines
package dataplane_test

import (
	"net/http"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// checkServerAnswers changes the health of servers. Each answer must have the server as it is in the worker
// then.
func checkServerAnswers(t *testing.T, s *subject) {
	s.post(t, s.config("n1", "backend checked", "  server c1 127.0.0.1:1 check inter 1h", "backend tracking", "  server t1 127.0.0.1:1 track checked/c1 disabled"),
		dataplane.PostOptions{ForceReload: true})
	const c1, t1 = "/runtime/backends/checked/servers/c1", "/runtime/backends/tracking/servers/t1"
	s.call(t, http.MethodPut, c1, `{"operational_state":"down"}`, 200)
	change := func(ch dataplane.ServerChange) dataplane.Server {
		t.Helper()
		told, err := s.SetServer(t.Context(), "checked", "c1", ch)
		if err != nil {
			t.Fatal(err)
		}
		servers, err := s.Servers(t.Context(), "checked")
		if err != nil || len(servers) != 1 || servers[0] != withWeight(told, servers[0].Weight) {
			t.Errorf("the answer to %+v is %+v, and the servers are %+v, %v", ch, told, servers, err)
		}
		return told
	}
	if told := change(dataplane.ServerChange{AdminState: dataplane.StateDrain}); told.AdminState != dataplane.StateDrain || told.OperationalState != "down" {
		t.Errorf("the drained server is %+v", told)
	}
	// With Up, a server that was found down is up as soon as it is ready.
	if told := change(dataplane.ServerChange{AdminState: dataplane.StateReady, Up: true}); told.AdminState != dataplane.StateReady || told.OperationalState != "up" {
		t.Errorf("the server that was said to be up is %+v", told)
	}
	s.call(t, http.MethodPut, c1, `{"operational_state":"asleep"}`, 422)
	s.call(t, http.MethodPut, c1, `{"admin_state":"asleep"}`, 422)
	s.call(t, http.MethodPut, c1, `{"port":65536}`, 422)

	// The health of a tracking server is that of the tracked one, and cannot be changed. It is changed before
	// the state.
	_, err := s.SetServer(t.Context(), "tracking", "t1", dataplane.ServerChange{AdminState: dataplane.StateReady, Up: true})
	wantError(t, err, dataplane.ErrUnavailable)
	var found struct {
		AdminState string `json:"admin_state"`
	}
	if s.callJSON(t, http.MethodGet, t1, "", 200, &found); found.AdminState != dataplane.StateMaint {
		t.Errorf("the tracking server is %+v", found)
	}
	s.call(t, http.MethodPut, t1, `{"admin_state":"ready"}`, 200)
}
