package bind_test

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// What is bound for several jobs is bound once, with the list of servers that the caller has, if that is equal. A
// configuration without servers has an empty list: none would mean that its servers are not known.
func TestOnce(t *testing.T) {
	t.Parallel()
	layout := bind.Layout{Maps: "/maps", Certificates: "/certs", General: "/general"}
	once := func(config string, known func([]bind.Server) []bind.Server) (bound bind.Bound, list []bind.Server) {
		t.Helper()
		s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(config)}}}.Number(1, snapshots.ID{})
		directives, err := bind.Directives(s.Config())
		if err != nil {
			t.Fatal(err)
		}
		slots, _ := bind.AssignSlots(nil, directives, nil, time.Time{}, 0)
		servers, err := bind.Servers(directives, slots)
		if err != nil {
			t.Fatal(err)
		}
		list = known(servers)
		of := new(bind.Binder).Once(s, bind.Inputs{Slots: slots, Layout: layout}, list)
		bound, err = of()
		again, err2 := of()
		if err != nil || err2 != nil || &bound.Config[0] != &again.Config[0] {
			t.Fatalf("bound twice: %v, %v", err, err2)
		}
		return bound, list
	}
	const web = "backend web\n    #hapsnap servers shop/web:http\n"
	if bound, list := once(web, func(s []bind.Server) []bind.Server { return s }); &bound.Servers[0] != &list[0] {
		t.Error("an equal list is not used")
	}
	if bound, list := once(web, func(s []bind.Server) []bind.Server { s[0].Port++; return s }); bound.Servers[0] == list[0] {
		t.Error("another list is used")
	}
	if bound, _ := once("frontend web\n    bind :80\n", func([]bind.Server) []bind.Server { return nil }); bound.Servers == nil {
		t.Error("it is not known that there are no servers")
	}
}
