// Command waf is the agent that inspects requests for HAProxy.
//
// See `waf --help`. It has no configuration of its own: HAProxy sends the policy with each request.
package main

import (
	"os"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/waf/cli"
)

func main() { os.Exit(process.Main(cli.NewCommand())) }
