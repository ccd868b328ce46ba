package main

const (
	oneClock  = "one wrong clock moves nothing"
	nodeclock = "internal/decide/nodeclock/nodeclock.go"
	ofClock   = "./internal/decide/nodeclock"
)

// clocks are faults in the clock that nodes agree on.
var clocks = []fault{
	{oneClock, "a step of the wall clock is not noticed", nodeclock,
		"ahead.Sub(c.settled).Abs() > stepMin", "false",
		ofClock, "^TestAnOnlyNodeConfirmsItsNewTime$"},
	{oneClock, "the own clock counts although it was set", nodeclock,
		"if !c.unsure {\n\t\tvotes", "if true {\n\t\tvotes",
		ofClock, "^TestAnOnlyNodeConfirmsItsNewTime$"},
	{oneClock, "the latest lead counts, however late it comes", nodeclock,
		"zero := n.most(later)", "zero := n.leads[max(n.n-1, 0)%leadsKept].zero",
		ofClock, "^TestALateWatchIsNoWrongClock$"},
	{oneClock, "the delay of the own renewals explains nothing", nodeclock,
		"echo = earlier(echo, later(n.most(earlier), c.ahead.Add(-echoMax)))", "",
		ofClock, "^TestALateWatchIsNoWrongClock$"},
	{oneClock, "the shared clock never goes back", nodeclock,
		"behind > 0 && behind <= backMax", "behind > 0",
		ofClock, "^TestTheSharedClockGoesBackOnlyWhenItWasSet$"},
	{oneClock, "leads are kept although their clock was set", nodeclock,
		"r.Standing == Doubtful || r.Since != n.reportedSince", "false",
		ofClock, "^TestASetClockOfAnotherNodeIsMeasuredAgain$"},
	{oneClock, "an even split has a majority", nodeclock,
		"if 2*near > len(votes) {", "if true {",
		ofClock, "^TestAnEvenSplitIsDecidedByWhoIsUndisturbedForLonger$"},
	{oneClock, "a node that is off plans and claims", "store/internal/replica/step.go",
		"if o.Starts {", "if false {",
		replica, "^TestANodeWithAWrongClockPlansAndClaimsNothing$"},
	{oneClock, "a node that is off is given runs", "store/membership.go",
		"s.Drain == nil && !s.ClockOff", "s.Drain == nil",
		replica, "^TestANodeWithAWrongClockPlansAndClaimsNothing$"},
	{oneClock, "a node that is off keeps its partitions", "internal/decide/placement/share.go",
		"slices.ContainsFunc(live, off)", "false",
		"./internal/check/sim", "^TestAStepOfOneClockMovesNoRun$"},
	{oneClock, "a step of the wall clock is not noticed, in the simulation", nodeclock,
		"ahead.Sub(c.settled).Abs() > stepMin", "false",
		"./internal/check/sim", "^TestAStepOfOneClockMovesNoRun$|^TestAnOnlyNode"},
}
