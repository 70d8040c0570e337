package channel

import (
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Verb is what somebody did to a channel, or what a rollout did.
type Verb string

// The verbs of acts on a channel.
const (
	VerbPin              Verb = "pin"
	VerbUnpin            Verb = "unpin"
	VerbRollback         Verb = "rollback"
	VerbOverride         Verb = "override"
	VerbOverrideEnd      Verb = "override-end"
	VerbPause            Verb = "pause"
	VerbResume           Verb = "resume"
	VerbApprove          Verb = "approve"
	VerbReject           Verb = "reject"
	VerbRetry            Verb = "retry"
	VerbPromote          Verb = "promote"
	VerbAbort            Verb = "abort"
	VerbConfirmEndpoints Verb = "confirm-endpoints"
	VerbAcceptRewind     Verb = "accept-rewind"
)

// Act is something that was done, by a person or by a program.
type Act struct {
	Time     time.Time    `json:"time"`
	Verb     Verb         `json:"act"`
	Snapshot snapshots.ID `json:"snapshot,omitzero"`
	By       string       `json:"by,omitempty"`
	Reason   string       `json:"reason,omitempty"`
}
