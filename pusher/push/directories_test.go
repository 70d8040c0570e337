package push_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

func TestCheckDirectory(t *testing.T) {
	layout := bind.Layout{Maps: "/etc/haproxy/maps", Certificates: "/etc/haproxy/ssl", General: "/etc/haproxy/general/"}
	for name, tt := range map[string]struct {
		storage dataplane.Storage
		listed  []string
		want    string // in the error, "" for none
	}{
		"as the Fleet says":           {dataplane.Maps, []string{"/etc/haproxy/maps/host.map"}, ""},
		"with a slash at its end":     {dataplane.General, []string{"/etc/haproxy/general/list.txt"}, ""},
		"nothing is listed":           {dataplane.Maps, nil, ""},
		"a listing without paths":     {dataplane.Maps, []string{""}, ""},
		"the vendor's images":         {dataplane.Maps, []string{"/usr/local/etc/haproxy/maps/host.map"}, "set directories: {maps: /usr/local/etc/haproxy/maps}"},
		"packages with other names":   {dataplane.Certificates, []string{"/etc/haproxy/certs/a.pem"}, "set directories: {certificates: /etc/haproxy/certs}"},
		"a folder below":              {dataplane.Maps, []string{"/etc/haproxy/maps/old/host.map"}, "/etc/haproxy/maps/old"},
		"a name that only begins so":  {dataplane.General, []string{"/etc/haproxy/general2/list.txt"}, "/etc/haproxy/general2"},
		"each storage has its own":    {dataplane.General, []string{"/etc/haproxy/maps/list.txt"}, "set directories: {general: /etc/haproxy/maps}"},
		"the second of several files": {dataplane.Maps, []string{"/etc/haproxy/maps/a.map", "/srv/maps/b.map"}, "/srv/maps"},
	} {
		t.Run(name, func(t *testing.T) {
			var listed []dataplane.File
			for _, path := range tt.listed {
				listed = append(listed, dataplane.File{Name: "x", Path: path})
			}
			err := push.CheckDirectory(tt.storage, layout, listed)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (!errors.Is(err, push.ErrDirectory) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("the error is %v, want %q", err, tt.want)
			case errors.Is(err, push.ErrRefused):
				t.Error("the snapshot is blamed")
			}
		})
	}
}
