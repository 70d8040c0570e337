package dataplane

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// DynamicServer is a server that is added to a backend of the running worker, as HAProxy's
// "add server" takes it: default-server lines do not count for it, and the API never
// enables its health check. It is gone after the next reload. Zero fields are HAProxy's
// defaults.
type DynamicServer struct {
	Name    string `json:"name"`
	Address string `json:"address"` // an IP; IPv6 in brackets
	Port    int    `json:"port"`

	Weight      *int   `json:"weight,omitempty"`
	Maxconn     int    `json:"maxconn,omitempty"`
	Minconn     int    `json:"minconn,omitempty"`
	Maxqueue    int    `json:"maxqueue,omitempty"`
	SSL         string `json:"ssl,omitempty"` // enabled
	ALPN        string `json:"alpn,omitempty"`
	Verify      string `json:"verify,omitempty"` // none or required
	VerifyHost  string `json:"verifyhost,omitempty"`
	CAFile      string `json:"ssl_cafile,omitempty"`
	SNI         string `json:"sni,omitempty"` // an expression
	Proto       string `json:"proto,omitempty"`
	SendProxy   string `json:"send-proxy,omitempty"`    // enabled
	SendProxyV2 string `json:"send-proxy-v2,omitempty"` // enabled
}

// AddServer adds a server to a backend of the running worker, in maintenance: make it ready
// with [Client.SetServer]. The error is [ErrConflict] where there is one of that name.
func (c *Client) AddServer(ctx context.Context, backend string, s DynamicServer) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, call{
		op: "add runtime server", method: http.MethodPost, path: serversPath(backend),
		body: body, contentType: "application/json", ok: []int{http.StatusCreated},
	})
	return err
}

// DeleteServer puts a server of the running worker into maintenance and deletes it. While
// the server has connections, HAProxy refuses the second, which is [ErrUnavailable]: new
// requests go to others from then on, and another call can delete it later.
func (c *Client) DeleteServer(ctx context.Context, backend, server string) error {
	_, err := c.do(ctx, call{
		op: "delete runtime server", method: http.MethodDelete, path: serversPath(backend) + "/" + url.PathEscape(server),
		ok: []int{http.StatusNoContent},
	})
	return err
}
