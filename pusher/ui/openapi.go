package ui

import (
	_ "embed" // see below
	"net/http"
)

// description describes the tables of all tabs in OpenAPI 3.1. A test makes it of the types that they are.
//
//go:embed openapi.json
var description []byte

func (*Server) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(description) // the client is gone
}
