package i18n

import "slices"

// catalogue has all texts, each with the page that shows it in a file texts_*.go.
var catalogue = slices.Concat(
	commonTexts,
	frameTexts,
	loginTexts,
	overviewTexts,
	jobsTexts,
	jobTexts,
	editTexts,
	runsTexts,
	timelineTexts,
	flowsTexts,
	nodesTexts,
	notificationsTexts,
	auditTexts,
	settingsTexts,
)
