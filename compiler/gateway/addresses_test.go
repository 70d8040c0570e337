package gateway_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/gateway"
)

// Each Gateway has an address of its own: the one in its status if it may keep that, the one that it names, or
// the first free one. A Gateway without one is accepted, not programmed, and not served.
func TestAddresses(t *testing.T) {
	t.Parallel()
	cfg := usual
	cfg.Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.5/32"), netip.MustParsePrefix("192.0.2.8/30")}
	for name, c := range map[string]struct {
		gateways []string // name, spec.addresses and status.addresses of each, oldest first
		want     string
	}{
		"the first that is free":           {[]string{"a||", "b||", "c||"}, "a 192.0.2.5, b 192.0.2.8, c 192.0.2.9"},
		"one that is named":                {[]string{"a||", "b|192.0.2.5|"}, "a 192.0.2.8, b 192.0.2.5"},
		"several that are named":           {[]string{"a|192.0.2.9 192.0.2.8|", "b||"}, "a 192.0.2.9+192.0.2.8, b 192.0.2.5"},
		"no value stands for any":          {[]string{"a|any|"}, "a 192.0.2.5"},
		"its status says it":               {[]string{"a||", "b||192.0.2.5"}, "a 192.0.2.8, b 192.0.2.5"},
		"nobody takes what another has":    {[]string{"a|192.0.2.5|", "b||192.0.2.5"}, "a AddressNotUsable, b 192.0.2.5"},
		"a status of somebody else's":      {[]string{"a||192.0.2.5", "b||192.0.2.5"}, "a 192.0.2.5, b 192.0.2.8"},
		"a status outside":                 {[]string{"a||198.51.100.1"}, "a 192.0.2.5"},
		"a status, and another name":       {[]string{"a|192.0.2.9|192.0.2.5"}, "a 192.0.2.9"},
		"outside":                          {[]string{"a|198.51.100.1|", "b||"}, "a AddressNotUsable, b 192.0.2.5"},
		"half outside":                     {[]string{"a|192.0.2.5 198.51.100.1|", "b||"}, "a AddressNotUsable, b 192.0.2.5"},
		"one that is named twice":          {[]string{"a|192.0.2.5|", "b|192.0.2.5|"}, "a 192.0.2.5, b AddressNotUsable"},
		"one that is named twice by one":   {[]string{"a|192.0.2.5 192.0.2.5|"}, "a AddressNotUsable"},
		"no address":                       {[]string{"a|nonsense|"}, "a AddressNotUsable"},
		"none is left":                     {[]string{"a||", "b||", "c||", "d||", "e||", "f||"}, "a 192.0.2.5, b 192.0.2.8, c 192.0.2.9, d 192.0.2.10, e 192.0.2.11, f AddressNotAssigned"},
		"a name, which is not an address":  {[]string{"a|host:x.example|"}, "a UnsupportedAddress"},
		"what cannot be had takes nothing": {[]string{"a|host:x.example 192.0.2.5|", "b||"}, "a UnsupportedAddress, b 192.0.2.5"},
	} {
		text := class
		for _, g := range c.gateways {
			fields := strings.Split(g, "|")
			text += object("Gateway", fields[0], fmt.Sprintf("{gatewayClassName: hapsnap, listeners: [{name: a, port: 443, protocol: HTTP}], addresses: %s}\nstatus: {addresses: %s}", addresses(fields[1]), addresses(fields[2])))
		}
		in := gathered(t, text)
		model, found, v := gateway.Translate(in, cfg)
		var got []string
		for _, g := range v.Gateways {
			accepted, programmed := gateway.Condition(g.Status.Conditions, "Accepted"), gateway.Condition(g.Status.Conditions, "Programmed")
			said := programmed.Reason
			switch {
			case accepted.Status != metav1.ConditionTrue:
				said = accepted.Reason
			case programmed.Type == "":
				said = strings.Join(valuesOf(g.Status.Addresses), "+")
			}
			got = append(got, g.Ref.Name+" "+said)
			served := false
			for _, b := range model.Binds {
				if b.Name == "shop/"+g.Ref.Name+":443" {
					served = true
					if bound := strings.Join(b.Addresses, "+"); bound != said {
						t.Errorf("%s: %s is bound at %s and says %s", name, g.Ref.Name, bound, said)
					}
				}
			}
			reported := false
			for _, d := range found {
				reported = reported || d.Object == g.Ref
			}
			if strings.HasPrefix(said, "192.") != served || served == reported {
				t.Errorf("%s: %s is served %v, reported %v, and says %s", name, g.Ref.Name, served, reported, said)
			}
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: got %s, want %s", name, text, c.want)
		}
	}
}

// addresses writes addresses as in a Gateway.
func addresses(texts string) string {
	var out []string
	for _, text := range strings.Fields(texts) {
		switch host, isHost := strings.CutPrefix(text, "host:"); {
		case text == "any":
			out = append(out, "{type: IPAddress}")
		case isHost:
			out = append(out, "{type: Hostname, value: "+host+"}")
		default:
			out = append(out, "{value: "+text+"}")
		}
	}
	return "[" + strings.Join(out, ", ") + "]"
}

func valuesOf(list []gatewayv1.GatewayStatusAddress) []string {
	var out []string
	for _, a := range list {
		out = append(out, a.Value)
	}
	return out
}
