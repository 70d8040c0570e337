package config

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// IngressStatus says which addresses the status of Ingresses names.
type IngressStatus struct {
	// Service is the one whose addresses they are, as namespace/name: those of its
	// load balancer and its external IPs; without a load balancer its external name,
	// its external IPs or its cluster IP. It must be among the Services that are
	// read. While it is not there, statuses stay as they are.
	Service string `json:"service"`
	// Addresses are IP addresses and host names, instead of a Service.
	Addresses []string `json:"addresses"`
}

func (s IngressStatus) check(f field.Errors) {
	if s.Service != "" {
		f.At("service").Add(checkShared(s.Service), "use the namespace and the name of a Service, such as edge/haproxy")
	}
	if s.Service != "" && len(s.Addresses) > 0 {
		f.At("addresses").Add("are given beside a Service", "use one or the other")
	}
	for i, text := range s.Addresses {
		ip, err := netip.ParseAddr(text)
		if (err != nil || ip.Zone() != "") && len(validation.IsDNS1123Subdomain(text)) > 0 {
			f.At("addresses").Element(i).Add(fmt.Sprintf("%q is neither an IP address nor a host name", text), "use such as 192.0.2.10 or edge.example.com")
		}
	}
}
