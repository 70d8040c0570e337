package pusher

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hapsnap/hapsnap/snapshots"
)

func TestMergeLive(t *testing.T) {
	web, api := snapshots.ServicePort{Namespace: "shop", Service: "web"}, snapshots.ServicePort{Namespace: "shop", Service: "api"}
	secret := snapshots.SecretName{Namespace: "shop", Name: "tls"}
	one := []snapshots.Endpoint{{Address: "10.0.0.1", Port: 80}}
	data := func(services []snapshots.ServicePort, certificates ...string) liveData {
		d := liveData{slices: len(services)}
		d.Endpoints = map[snapshots.ServicePort][]snapshots.Endpoint{}
		for _, s := range services {
			d.Endpoints[s] = one
		}
		d.Certificates = map[snapshots.SecretName][]byte{}
		for _, c := range certificates {
			d.Certificates[secret] = []byte(c)
		}
		return d
	}
	both, onlyWeb := []snapshots.ServicePort{web, api}, []snapshots.ServicePort{web}
	tests := map[string]struct {
		old, read liveData
		edit      func(*liveData)
		want      liveData
		fault     bool
	}{
		"a Service lost its endpoints":     {old: data(both, "old"), read: data(onlyWeb, "new"), want: data(onlyWeb, "new")},
		"something could not be parsed":    {old: data(both, "old"), read: data(onlyWeb), edit: func(d *liveData) { d.unsure = true }, want: data(both, "old")},
		"a Secret is gone":                 {old: data(onlyWeb, "old"), read: data(onlyWeb), want: data(onlyWeb)},
		"a Secret is broken":               {old: data(onlyWeb, "old"), read: data(onlyWeb), edit: func(d *liveData) { d.broken = map[snapshots.SecretName]bool{secret: true} }, want: data(onlyWeb, "old")},
		"all slices are gone at once":      {old: data(both), read: data(nil), want: data(both), fault: true},
		"there never were any":             {old: data(nil), read: data(nil), want: data(nil)},
		"a broken Secret without a former": {old: data(nil), read: data(nil), edit: func(d *liveData) { d.broken = map[snapshots.SecretName]bool{secret: true} }, want: data(nil)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.edit != nil {
				test.edit(&test.read)
			}
			got, err := mergeLive(test.old, test.read)
			if (err != nil) != test.fault {
				t.Errorf("error is %v", err)
			}
			if diff := cmp.Diff(test.want.Live, got.Live); diff != "" {
				t.Errorf("merged otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

// A Secret that is there says who may pass, also by what it lacks; one that may be
// in what could not be parsed is taken to be as it was.
func TestMergeLiveSecrets(t *testing.T) {
	name := func(s string) snapshots.SecretName { return snapshots.SecretName{Namespace: "shop", Name: s} }
	data := func(there ...string) liveData {
		d := liveData{slices: 1, secrets: map[snapshots.SecretName]bool{}}
		d.Authorities, d.Users = map[snapshots.SecretName][]byte{}, map[snapshots.SecretName][]snapshots.User{}
		d.Values = map[snapshots.SecretKey]string{}
		for _, s := range there {
			d.secrets[name(s)] = true
			d.Authorities[name(s)], d.Users[name(s)] = []byte(s), []snapshots.User{{Name: s}}
			d.Values[snapshots.SecretKey{Secret: name(s), Key: "key"}] = s
		}
		return d
	}
	emptied := data()
	emptied.secrets[name("a")] = true
	unsure := func(d liveData) liveData { d.unsure = true; return d }
	for test, c := range map[string]struct{ old, read, want liveData }{
		"gone":                      {data("a", "b"), data("b"), data("b")},
		"empty now":                 {data("a", "b"), emptied, data()},
		"perhaps gone":              {data("a", "b"), unsure(data("b")), data("a", "b")},
		"empty, and others unsure":  {data("a", "b"), unsure(emptied), data("b")},
		"new, where others are not": {data(), unsure(data("a")), data("a")},
	} {
		t.Run(test, func(t *testing.T) {
			got, err := mergeLive(c.old, c.read)
			if diff := cmp.Diff(c.want.Live, got.Live, cmpopts.EquateEmpty()); diff != "" || err != nil {
				t.Errorf("%v, merged otherwise (-want +got):\n%s", err, diff)
			}
		})
	}
}
