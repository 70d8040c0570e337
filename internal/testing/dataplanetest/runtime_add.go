package dataplanetest

import (
	"fmt"
	"strings"
)

// addedServer is the body of a call that adds a server to the worker, with some of its many
// fields.
type addedServer struct {
	Name        string `json:"name"`
	Address     string `json:"address"`
	Port        *int   `json:"port,omitempty"`
	Check       string `json:"check,omitempty"`
	Weight      *int   `json:"weight,omitempty"`
	Maxconn     *int   `json:"maxconn,omitempty"`
	Minconn     *int   `json:"minconn,omitempty"`
	Maxqueue    *int   `json:"maxqueue,omitempty"`
	SSL         string `json:"ssl,omitempty"`
	ALPN        string `json:"alpn,omitempty"`
	Verify      string `json:"verify,omitempty"`
	VerifyHost  string `json:"verifyhost,omitempty"`
	CAFile      string `json:"ssl_cafile,omitempty"`
	SNI         string `json:"sni,omitempty"`
	Proto       string `json:"proto,omitempty"`
	SendProxy   string `json:"send-proxy,omitempty"`
	SendProxyV2 string `json:"send-proxy-v2,omitempty"`
}

// line returns what follows the server's name on HAProxy's socket, in the API's order.
func (s addedServer) line() string {
	var b strings.Builder
	b.WriteString(" " + s.Address)
	if s.Port != nil {
		fmt.Fprintf(&b, ":%d", *s.Port)
	}
	word := func(key, value string) {
		if value != "" {
			b.WriteString(" " + key + " " + value)
		}
	}
	number := func(key string, value *int) {
		if value != nil {
			fmt.Fprintf(&b, " %s %d", key, *value)
		}
	}
	flag := func(key, value string) {
		if value == "enabled" {
			b.WriteString(" " + key)
		}
	}
	word("alpn", s.ALPN)
	word("ca-file", s.CAFile)
	flag("check", s.Check)
	number("maxconn", s.Maxconn)
	number("maxqueue", s.Maxqueue)
	number("minconn", s.Minconn)
	word("proto", s.Proto)
	flag("send-proxy", s.SendProxy)
	flag("send-proxy-v2", s.SendProxyV2)
	word("sni", s.SNI)
	flag("ssl", s.SSL)
	word("verify", s.Verify)
	word("verifyhost", s.VerifyHost)
	number("weight", s.Weight)
	return b.String()
}
