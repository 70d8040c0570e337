package core

import (
	"errors"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Events and effects are values that a log and a test can print: on one line, without empty fields and without
// secrets.
func TestEventsAndEffectsPrint(t *testing.T) {
	t.Parallel()
	one := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}
	i := &instanceState{Instance: fleet.Instance{Name: "edge-1", URL: "http://admin:hunter2@edge", Password: "hunter2"}}
	about := instance.About{Ref: i.ref()}
	for want, value := range map[string]interface{ String() string }{
		`probed instance=edge-1 node=r000001-aaaaaaaaaa_00000000 pid=7`: instance.Probed{About: about, Info: dataplane.RuntimeInfo{Node: one.String() + "_00000000", PID: 7}},
		`probed instance=edge-1 err="no route"`:                         instance.Probed{About: about, Err: errors.New("no route")},
		`push ended instance=edge-1 snapshot=r000001-aaaaaaaaaa why=wave outcome=refused err=refused`: instance.PushEnded{
			About: about, Push: rollout.Push{Instance: "edge-1", Snapshot: one, Purpose: rollout.Wave}, Err: push.ErrRefused,
		},
		`push instance=edge-1 snapshot=r000001-aaaaaaaaaa why=wave`: instance.Push{Ref: i.ref(), Push: rollout.Push{Instance: "edge-1", Snapshot: one, Purpose: rollout.Wave}},
		`join instance=edge-1`: instance.Join{Ref: i.ref(), Spec: i.Instance},
		`certificates opened snapshot=r000001-aaaaaaaaaa certificates=1`: CertificatesOpened{
			ID: one, Found: map[string][]byte{"web": []byte("-----BEGIN PRIVATE KEY-----")},
		},
		`live objects read certificates=1`: LiveRead{Live: binding.Objects{Live: bind.Live{
			Certificates: map[snapshots.SecretName][]byte{{Namespace: "shop", Name: "web"}: []byte("-----BEGIN PRIVATE KEY-----")},
		}}},
		`fleet read fleet=edge instances=1`:                      FleetRead{Fleet: fleet.Fleet{Name: "edge", Instances: []fleet.Instance{i.Instance}}},
		`store read err="the store is gone"`:                     ViewRead{Err: errors.New("the store is gone")},
		`read snapshot snapshot=r000001-aaaaaaaaaa`:              ReadSnapshot{ID: one},
		`collect instance=edge-1 files=1`:                        instance.Collect{Ref: i.ref(), Garbage: []push.Stored{{Name: "a.map"}}},
		`update ended instance=edge-1 node=here`:                 instance.UpdateEnded{About: about, Node: "here"},
		`rejection written snapshot=r000001-aaaaaaaaaa err=gone`: RejectionWritten{one, errors.New("gone")},
	} {
		if got := value.String(); got != want {
			t.Errorf("%T prints\n%s\nwant\n%s", value, got, want)
		}
	}
}
