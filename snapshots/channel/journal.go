package channel

import (
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

// Act is something that was done to a channel, by a person or by a program.
type Act struct {
	Verb     Verb
	Snapshot snapshots.ID // that it was about, if any
	By       string       // as the channel says it
	Reason   string
	Author   Person // the zero value: the program itself
}

// Person is somebody as git names them.
type Person struct{ Name, Email string }
