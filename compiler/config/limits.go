package config

import (
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// Limits bound what the objects of one namespace may ask of a compile. 0 sets none.
type Limits struct {
	// IngressRoutes are the routes of one Ingress: its paths, once for each name of their
	// host, and the hosts of its tls entries.
	IngressRoutes int `json:"ingressRoutes"`
	// NamespaceRoutes are the routes of all Ingresses of a namespace.
	NamespaceRoutes int `json:"namespaceRoutes"`
	// IngressRouteBytes are the bytes of the hosts and paths of the routes of one Ingress, as
	// HAProxy's maps have them.
	IngressRouteBytes int `json:"ingressRouteBytes"`
	// NamespaceRouteBytes are those of all Ingresses of a namespace.
	NamespaceRouteBytes int `json:"namespaceRouteBytes"`
	// IngressOptionBytes are the bytes of an Ingress's hapsnap.dev annotations and of
	// those of its Services, once for each Service port that it leads to, since each has
	// a HAProxy backend with these options.
	IngressOptionBytes int `json:"ingressOptionBytes"`
	// NamespaceOptionBytes are those of all Ingresses of a namespace.
	NamespaceOptionBytes int `json:"namespaceOptionBytes"`
	// NamespaceListBytes are the bytes of the lists of networks in ConfigMaps of a
	// namespace that options name. Those in shared.networkLists do not count.
	NamespaceListBytes int `json:"namespaceListBytes"`
}

// defaultLimits are far above what people use, and far below what takes a compile's time.
func defaultLimits() Limits {
	return Limits{
		IngressRoutes: 10_000, NamespaceRoutes: 50_000, IngressRouteBytes: 2 << 20, NamespaceRouteBytes: 8 << 20,
		IngressOptionBytes: 2 << 20, NamespaceOptionBytes: 16 << 20, NamespaceListBytes: 8 << 20,
	}
}

func (l Limits) check(f field.Errors) {
	for _, field := range []struct {
		name  string
		value int
	}{
		{"ingressRoutes", l.IngressRoutes},
		{"namespaceRoutes", l.NamespaceRoutes},
		{"ingressRouteBytes", l.IngressRouteBytes},
		{"namespaceRouteBytes", l.NamespaceRouteBytes},
		{"ingressOptionBytes", l.IngressOptionBytes},
		{"namespaceOptionBytes", l.NamespaceOptionBytes},
		{"namespaceListBytes", l.NamespaceListBytes},
	} {
		if field.value < 0 {
			f.At(field.name).Add(fmt.Sprintf("%d is not a limit", field.value), "use 1 or more, or 0 for none")
		}
	}
}
