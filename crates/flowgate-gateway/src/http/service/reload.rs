//! Reloads the configuration of the running gateway: `server` calls it on SIGHUP, and `service` by order of an admin. A
//! configuration that cannot be used is refused, and the present one stays in force.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use flowgate_audit::ConfigurationCause;
use serde_json::json;

use super::GatewayService;
use crate::chat::reload::ReloadSummary;
use crate::config::Role;
use crate::http::reply::HttpReply;
use crate::log::LogEvent;

impl GatewayService {
    /// Returns whether the configuration can be reloaded: the gateway was started with a file.
    pub(crate) fn can_reload(&self) -> bool {
        self.loader.is_some()
    }

    /// Reads the configuration again, and serves it from now on. Writes to the operator's log what has changed, or why
    /// the present configuration stays in force. `cause` says whether a signal or the order of a person causes the
    /// reload. Reloads run one after the other.
    ///
    /// # Errors
    /// Why the present configuration stays in force.
    pub(crate) async fn reload(&self, cause: ConfigurationCause) -> Result<ReloadSummary, String> {
        let by = cause.person().unwrap_or("SIGHUP").to_owned();
        let outcome = self.reload_unlogged(cause).await;
        match &outcome {
            Ok(summary) => {
                let fields = vec![
                    ("by", by.into()),
                    ("added", summary.added.join(",").into()),
                    ("changed", summary.changed.join(",").into()),
                    ("removed", summary.removed.join(",").into()),
                ];
                let sentence = "the configuration was reloaded and is in force";
                self.log.write(LogEvent::Configuration, "", fields, sentence);
                if !summary.needs_restart.is_empty() {
                    let sections = summary.needs_restart.join("], [");
                    let sentence = format!(
                        "a reload does not change these sections: restart the gateway, so that they take effect: [{sections}]"
                    );
                    self.log.write(LogEvent::Remark, "", Vec::new(), &sentence);
                }
            }
            Err(why) => {
                let sentence =
                    format!("the configuration was not reloaded, and the present one stays in force: {why}");
                self.log.write(LogEvent::Remark, "", Vec::new(), &sentence);
            }
        }
        outcome
    }

    /// Reads the configuration again, and serves it from now on. Writes nothing to the log. If another reload runs,
    /// waits for its end first.
    ///
    /// # Errors
    /// Why the present configuration stays in force.
    async fn reload_unlogged(&self, cause: ConfigurationCause) -> Result<ReloadSummary, String> {
        // The model routes are read again below, after the wait: an earlier reload may have replaced them.
        let (Some(loader), Some(_)) = (&self.loader, self.models()) else {
            return Err(
                "the gateway was started without a configuration file: start it with `--config`".to_owned()
            );
        };
        let _one_at_a_time = self.reloading.lock().await;
        let loader = loader.clone();
        let read = tokio::task::spawn_blocking(move || loader.load()).await;
        let config = read.map_err(|_| {
            "the configuration could not be read because of a bug in the gateway: report it".to_owned()
        })??;
        // Cannot fail: model routes are replaced, but never removed.
        let Some(models) = self.models() else {
            return Err("the gateway has lost its routes for models because of a bug: report it".to_owned());
        };
        let summary = models.compare(&config);
        let later = Arc::new(models.reconfigured(config, cause).map_err(|error| error.to_string())?);
        self.set_models(Arc::clone(&later));
        models.replace_by(&later);
        Ok(summary)
    }

    /// Serves the order of an admin to reload the configuration. The reload is completed even if the client
    /// disconnects. Returns the error to send if the person is no admin of all tenants, or the present configuration
    /// stays in force.
    pub(super) async fn reload_by_order(self: &Arc<Self>, request: Request) -> Result<HttpReply, HttpReply> {
        let approvals = Arc::clone(&self.routes_of_people()?.approvals);
        let person = approvals.person(request.headers(), Role::Admin)?;
        if !person.tenants.is_empty() {
            let message = "your role is limited to some tenants, but a reload applies to all of them: ask an admin of all tenants";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        // From now on, the connection is not closed to make room for another one: the person is authenticated.
        super::protect_connection(request.extensions());
        let service = Arc::clone(self);
        let cause = ConfigurationCause::Order(person.name.clone());
        let reloaded = self.orders.spawn(async move { service.reload(cause).await });
        match reloaded.await.map_err(|_| super::failed_order_reply())? {
            Ok(summary) => Ok(HttpReply::json(StatusCode::OK, &json!(summary))),
            Err(why) => Err(HttpReply::detail(StatusCode::CONFLICT, &why)),
        }
    }
}
